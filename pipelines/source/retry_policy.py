"""Retries of an operation on the source: exponential delays, and a bound for each kind of failure, which progress resets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pipelines.errors import RetriableError
from pipelines.io.append_result import WriterEnded
from pipelines.io.metrics import count_failures
from pipelines.source.errors import NoAnswer

T = TypeVar("T")
log = logging.getLogger("strandline.source")


@dataclass
class Failures:
    """Failures of one operation since its last progress, counted by kind."""

    unanswered: int = 0
    """Nobody answered: no server was reached, or the connection broke."""
    others: int = 0
    """A server answered with a failure that may pass, such as an election."""

    @property
    def total(self) -> int:
        return self.unanswered + self.others

    def add(self, error: RetriableError) -> None:
        if isinstance(error, NoAnswer):
            self.unanswered += 1
        else:
            self.others += 1

    def clear(self) -> None:
        """The operation made progress: earlier failures count no more."""
        self.unanswered = self.others = 0


@dataclass(frozen=True)
class RetryPolicy:
    """Retry after a `RetriableError`; every other error ends an operation at once.

    The delay doubles from *initial_delay_ms* to *max_delay_ms*.
    """

    max_retries: int = -1
    """Maximum failures without progress in which a server answered; -1: no limit."""
    connect_max_attempts: int = 16
    """Maximum attempts without progress in which nobody answered."""
    initial_delay_ms: int = 1000
    max_delay_ms: int = 120_000

    def call(
        self, operation: Callable[[], T], stop: threading.Event | None = None, failures: Failures | None = None
    ) -> T:
        """I/O: return the result of *operation*, which is repeated while its failures are within the bounds.

        Args:
            operation: Called again after each failure.
            stop: Ends a delay early, and the retries with the next failure.
            failures: Shared with *operation*, which clears it when it makes progress. Default: no progress before the result.

        Raises:
            RetriableError: The last failure, when a bound is reached.
        """
        waiting, failures = stop or threading.Event(), failures or Failures()
        while True:
            try:
                return operation()
            except WriterEnded:
                raise
            except RetriableError as error:
                failures.add(error)
                if waiting.is_set() or self._exhausted(failures, error):
                    raise
                delay = self.delay_seconds(failures.total)
                _log_retry(error, failures.total, delay)
            waiting.wait(delay)

    def delay_seconds(self, failures: int) -> float:
        """Delay after *failures* in a row; 0 after none."""
        return (
            0.0 if failures < 1 else min(self.initial_delay_ms * 2.0 ** min(failures - 1, 30), self.max_delay_ms) / 1000
        )

    def _exhausted(self, failures: Failures, error: RetriableError) -> bool:
        if isinstance(error, NoAnswer):
            return failures.unanswered >= self.connect_max_attempts
        return 0 <= self.max_retries < failures.others


def _log_retry(error: RetriableError, failures: int, delay: float) -> None:
    count_failures(1, logged=1, retries=1)
    context = {"stage": "read", "class": type(error).__name__, "attempt": failures, "next_attempt_in_seconds": delay}
    log.warning("%s; attempt %d follows in %.0f s", error.message, failures + 1, delay, extra={"context": context})
