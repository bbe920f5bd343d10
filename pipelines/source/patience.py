"""How long a source that does not answer is waited for: exponential delays, a bounded count, and a count that progress resets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from tenacity import AttemptManager, RetryCallState, Retrying, retry_if_exception_type, retry_if_not_exception_type

from pipelines.errors import RetriableError
from pipelines.io.landed import WriterEnded
from pipelines.io.metrics import count_failures
from pipelines.source.errors import NoAnswer

T = TypeVar("T")
log = logging.getLogger("strandline.source")


@dataclass(frozen=True)
class Patience:
    """What is tried again after a `RetriableError`, how often and when: after 1, 2, 4, … seconds, the longest `max_delay_ms`.

    Everything else ends at once: it would repeat for ever.
    """

    max_retries: int = -1
    """Failures in a row without progress; -1: no limit."""
    connect_max_attempts: int = 16
    """Attempts in a row in which nobody answered."""
    initial_delay_ms: int = 1000
    max_delay_ms: int = 120_000

    def attempts(self, stop: threading.Event | None = None) -> Iterator[AttemptManager]:
        """Use as ``for attempt in …: with attempt: …``; `made_progress` inside resets the count.

        Args:
            stop: Ends a wait early, and the attempts with the next failure.

        Raises:
            RetriableError: The last one, once the attempts are used up.
        """
        waiting = stop or threading.Event()
        return iter(
            Retrying(
                retry=retry_if_exception_type(RetriableError) & retry_if_not_exception_type(WriterEnded),
                wait=lambda state: self.delay_seconds(state.attempt_number),
                stop=lambda state: waiting.is_set() or self._exhausted(state),
                sleep=lambda seconds: _wait(waiting, seconds),
                before_sleep=_log_retry,
                reraise=True,
            )
        )

    def call(self, question: Callable[[], T], stop: threading.Event | None = None) -> T:
        """I/O: the answer to *question*, asked as often as `attempts` allows."""
        for attempt in self.attempts(stop):
            with attempt:
                return question()
        raise AssertionError("attempts end with an answer or an error")

    def delay_seconds(self, failures: int) -> float:
        """The wait after so many failures in a row; none after none."""
        return 0.0 if failures < 1 else min(self.initial_delay_ms * 2.0 ** min(failures - 1, 30), self.max_delay_ms) / 1000

    def _exhausted(self, state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        unanswered = isinstance(error, NoAnswer) and state.attempt_number >= self.connect_max_attempts
        return unanswered or 0 <= self.max_retries < state.attempt_number


def made_progress(attempt: AttemptManager) -> None:
    """The stream moved on: the failures before count no more."""
    attempt.retry_state.attempt_number = 1


def _wait(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds)


def _log_retry(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    delay = state.next_action.sleep if state.next_action is not None else 0.0
    count_failures(1, logged=1, retries=1)
    context: dict[str, Any] = {
        "stage": "read",
        "class": type(error).__name__,
        "attempt": state.attempt_number,
        "next_attempt_in_seconds": delay,
    }
    log.warning(
        "%s; attempt %d follows in %.0f s", getattr(error, "message", error), state.attempt_number + 1, delay, extra={"context": context}
    )
