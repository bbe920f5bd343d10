"""Retries of operations on the source: exponential back-off, and a limit per kind of failure. Progress resets both."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from strandline.errors import LakeUnavailable, RetriableError
from strandline.io.delta_log.append_result import WriterEnded
from strandline.io.telemetry.metrics import count_failures
from strandline.source.errors import NoAnswer

T = TypeVar("T")
log = logging.getLogger("strandline.source")


@dataclass
class Failures:
    """Counts of an operation's failures since it last made progress."""

    unanswered: int = 0
    """Failures without an answer: no server was reached, or the connection broke."""
    others: int = 0
    """Failures that a server reported and that may pass, such as an election."""

    @property
    def total(self) -> int:
        """Return the number of all failures."""
        return self.unanswered + self.others

    def add(self, error: RetriableError) -> None:
        """Count one failure."""
        if isinstance(error, NoAnswer):
            self.unanswered += 1
        else:
            self.others += 1

    def clear(self) -> None:
        """Set the counts to 0, because the operation made progress."""
        self.unanswered = self.others = 0


@dataclass(frozen=True)
class RetryPolicy:
    """Limits and delays of retries. Only a `RetriableError` is retried.

    The delay doubles from *initial_delay_ms* up to *max_delay_ms*, in milliseconds.
    """

    max_retries: int = -1
    """Maximum retries without progress after failures that a server reported. -1: no limit."""
    connect_max_attempts: int = 16
    """Maximum attempts without progress and without an answer."""
    initial_delay_ms: int = 1000
    max_delay_ms: int = 120_000
    before_retry: Callable[[], None] = lambda: None
    """Called before each retry. What it raises ends the retries."""

    def call(
        self, operation: Callable[[], T], stop: threading.Event | None = None, failures: Failures | None = None
    ) -> T:
        """Call *operation*, retry it after a `RetriableError`, and return its result.

        Args:
            operation: Called again after each retriable failure.
            stop: If set, ends the current delay; the next failure is raised.
            failures: Counts that *operation* clears when it makes progress. None: all failures count.

        Raises:
            RetriableError: The last failure, when a limit is reached or *stop* is set.
            LakeUnavailable, WriterEnded: Never retried. The capture as a whole is begun again, or ends.
            StrandlineError: Raised by *before_retry*.
        """
        stopped, failures = stop or threading.Event(), failures or Failures()
        while True:
            try:
                return operation()
            except (LakeUnavailable, WriterEnded):
                raise
            except RetriableError as error:
                failures.add(error)
                if stopped.is_set() or self._exhausted(failures, error):
                    raise
                delay = self.delay_seconds(failures.total)
                log_retry(error, "read", failures.total, delay)
            stopped.wait(delay)
            self.before_retry()

    def delay_seconds(self, failures: int) -> float:
        """Return the delay in seconds after so many *failures* in a row; 0 after none."""
        return (
            0.0 if failures < 1 else min(self.initial_delay_ms * 2.0 ** min(failures - 1, 30), self.max_delay_ms) / 1000
        )

    def _exhausted(self, failures: Failures, error: RetriableError) -> bool:
        if isinstance(error, NoAnswer):
            return failures.unanswered >= self.connect_max_attempts
        return 0 <= self.max_retries < failures.others


def log_retry(error: RetriableError, stage: str, failures: int, delay: float) -> None:
    """Count a failure that is retried, and log it as one line with KIP-298's context.

    Args:
        stage: Part of the capture that failed: ``read`` (the source) or ``write`` (the lake).
        failures: Number of failures in a row.
        delay: Wait before the next attempt, in seconds.
    """
    count_failures(1, logged=1, retries=1)
    context = {"stage": stage, "class": type(error).__name__, "attempt": failures, "next_attempt_in_seconds": delay}
    log.warning("%s; attempt %d follows in %.0f s", error.message, failures + 1, delay, extra={"context": context})
