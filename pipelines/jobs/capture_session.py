"""With what a capture reads and writes, beside the stream and in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pipelines.bronze.writer import BronzeWriter
from pipelines.control.notifications import Notifications
from pipelines.control.sources import SourceStateMonitor
from pipelines.settings.capture import CaptureSettings
from pipelines.source.client import AnyClient, ConnectionOptions
from pipelines.source.retry_policy import RetryPolicy
from pipelines.source.stages import Selection

T = TypeVar("T")
Report = Callable[[str, int], None]
"""Told what landed: ``("events", n)`` or ``("documents", n)`` since the last call."""


@dataclass(frozen=True)
class CaptureSession:
    """Built once for a run.

    Args:
        client: Opened with ``raw=True``; for the driver. Executors open their own by *options*.
        stop: Ends the run.
    """

    writer: BronzeWriter
    options: ConnectionOptions
    client: AnyClient
    selection: Selection
    settings: CaptureSettings
    gate: SourceStateMonitor
    notifications: Notifications
    report: Report
    retry_policy: RetryPolicy
    stop: threading.Event
    show_keys: bool = False
    """Errors name a document by its key, not by the key's hash."""

    def retry(self, question: Callable[[], T]) -> T:
        """I/O: the answer to *question*, for which the source is waited for as the stream waits. Raises RetriableError where that ends."""
        return self.retry_policy.call(question, self.stop)
