"""Retries of a capture while its lake cannot be read or written, by the rules of KIP-298.

A failed commit may be in the table, or not. So nothing of the failed attempt is used again: the capture opens bronze
anew and continues from what bronze holds, as after a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from strandline.io.spark.storage_failures import lake_unavailable
from strandline.io.telemetry.live_state import CaptureState
from strandline.source.retry_policy import RetryPolicy, log_retry

T = TypeVar("T")


@dataclass
class LakeOutages:
    """Repeats attempts to capture. Progress resets the number of failures.

    The delays are those of the source. The limit is ``connect_max_attempts``: a lake that cannot be written is like a
    server that does not answer.

    Args:
        stop: Ends a wait, and the retries.
        state: Observer that shows the failure, and counts the commits.
    """

    policy: RetryPolicy
    stop: threading.Event
    state: CaptureState
    begun: bool = False
    """True: bronze was opened in this run. A failure before that is not retried: a wrong place is told at once."""
    _failures: int = field(default=0, init=False)
    _commits: int = field(default=0, init=False)

    def retry(self, attempt: Callable[[bool], T]) -> T:
        """Return the result of *attempt*. Repeat it after a wait if the lake cannot be read or written.

        Args:
            attempt: Captures until the run ends. Called with True after a failed attempt.

        Raises:
            LakeUnavailable: The attempts are used up, *stop* is set, or bronze was never opened.
        """
        is_retry = False
        while True:
            try:
                return attempt(is_retry)
            except Exception as error:
                unavailable = lake_unavailable(error)
                if unavailable is None:
                    raise
                delay = self._delay_after_failure()
                if delay is None:
                    raise unavailable from error
                self.state.failing["lake"] = str(unavailable)
                log_retry(unavailable, "write", self._failures, delay)
            is_retry = True
            if self.state.wait(self.stop, delay):
                raise unavailable

    def _delay_after_failure(self) -> float | None:
        """Count one failure. Return the delay before the next attempt, in seconds; None: there is no next attempt."""
        if self.state.commits != self._commits:
            self._commits, self._failures = self.state.commits, 0
        self._failures += 1
        if not self.begun or self.stop.is_set() or self._failures >= self.policy.connect_max_attempts:
            return None
        return self.policy.delay_seconds(self._failures)
