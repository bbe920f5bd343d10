"""The objects that all parts of one capture share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from strandline.bronze.writer import BronzeWriter
from strandline.control.notifications import Notifications
from strandline.control.sources import SourceStateMonitor
from strandline.io.telemetry.live_state import CaptureState
from strandline.settings.capture import CaptureSettings
from strandline.source.client import AnyClient, ConnectionOptions
from strandline.source.deployment import Deployment
from strandline.source.oplog import Oplog
from strandline.source.read_watch import ReadWatch
from strandline.source.retry_policy import RetryPolicy
from strandline.source.stages import Selection

T = TypeVar("T")
Report = Callable[[str, int], None]
"""Called after each commit with ``("events", n)`` or ``("documents", n)``: the rows of that commit."""


@dataclass(frozen=True, kw_only=True)
class CaptureSession:
    """The context of one attempt to capture: connections, settings and writers.

    Args:
        state: Observer of the capture.
        options: Connection options, for clients that executors and lanes open.
        client: Client of the driver, opened with ``raw=True``.
        gate: Waits while an operator has paused the source.
        report: Called after each commit.
        stop: Ends the run when it is set.
        reads: Ends reads that do not return when the run ends.
    """

    state: CaptureState
    writer: BronzeWriter
    options: ConnectionOptions
    client: AnyClient
    oplog: Oplog
    deployment: Deployment
    selection: Selection
    settings: CaptureSettings
    gate: SourceStateMonitor
    notifications: Notifications
    report: Report
    retry_policy: RetryPolicy
    stop: threading.Event
    show_keys: bool = False
    """True: errors show a document's key. False: they show a hash of it."""
    reads: ReadWatch = field(default_factory=lambda: ReadWatch(threading.Event(), ()))

    def retry(self, operation: Callable[[], T]) -> T:
        """Return the result of *operation*. Retry it while the source does not answer, with the back-off of the stream.

        For the loop's thread: an attempt has no time limit.

        I/O: that of *operation*.

        Raises:
            RetriableError: The retries are used up, or `stop` was set before a failure.
        """

        def attempt() -> T:
            with self.state.without_limit(), self.reads.waiting("a query of capture"):
                return operation()

        return self.retry_policy.call(attempt, self.stop)
