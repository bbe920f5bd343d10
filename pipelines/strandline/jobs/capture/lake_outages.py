"""Retries of a capture while its lake cannot be read or written, by the rules of KIP-298.

A failed commit may be in the table, or not. So nothing of the failed attempt is used again: the capture opens bronze
anew and continues from what bronze holds, as after a crash.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from strandline.io.spark.storage_failures import lake_unavailable
from strandline.io.telemetry.live_state import CAPTURE
from strandline.source.retry_policy import RetryPolicy, log_retry

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Attempt(Protocol[T_co]):
    """One attempt to capture."""

    def __call__(self, *, again: bool) -> T_co:
        """Capture until the run ends.

        Args:
            again: True if an attempt of this run failed before.
        """


@dataclass
class LakeOutages:
    """Repeats attempts to capture. Progress resets the number of failures.

    The delays are those of the source. The limit is ``connect_max_attempts``: a lake that cannot be written is like a
    server that does not answer.

    Args:
        stop: Ends a wait, and the retries.
    """

    policy: RetryPolicy
    stop: threading.Event
    begun: bool = False
    """True: bronze was opened in this run. A failure before that is not retried: a wrong place is told at once."""
    _failures: int = field(default=0, init=False)
    _commits: int = field(default=0, init=False)

    def retry(self, attempt: Attempt[T]) -> T:
        """Return the result of *attempt*. Repeat it after a wait if the lake cannot be read or written.

        Raises:
            LakeUnavailable: The attempts are used up, *stop* is set, or bronze was never opened.
        """
        again = False
        while True:
            try:
                return attempt(again=again)
            except Exception as error:
                unavailable = lake_unavailable(error)
                if unavailable is None:
                    raise
                delay = self._delay_after_failure()
                if delay is None:
                    raise unavailable from error
                CAPTURE.failing["lake"] = str(unavailable)
                log_retry(unavailable, "write", self._failures, delay)
            again = True
            if CAPTURE.wait(self.stop, delay):
                raise unavailable

    def _delay_after_failure(self) -> float | None:
        """Count one failure. Return the delay before the next attempt, in seconds; None: there is no next attempt."""
        if CAPTURE.commits != self._commits:
            self._commits, self._failures = CAPTURE.commits, 0
        self._failures += 1
        if not self.begun or self.stop.is_set() or self._failures >= self.policy.connect_max_attempts:
            return None
        return self.policy.delay_seconds(self._failures)
