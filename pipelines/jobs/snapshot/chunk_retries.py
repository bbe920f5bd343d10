"""How often a chunk of a snapshot is tried."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential,
)

from pipelines.errors import RetriableError, StrandlineError
from pipelines.source.retry_policy import RetryPolicy

_ATTEMPTS = 5


def retry_chunk(land: Callable[[], int], retry_policy: RetryPolicy, stop: threading.Event) -> int:
    """I/O: what *land* returns. A source that does not answer is waited for as the stream waits for it; whatever else may pass is tried
    five times.

    Args:
        stop: Ends a wait early, and the attempts with the next failure.

    Raises:
        RetriableError: The attempts are used up.
        StrandlineError: A refusal, at once.
    """
    attempts = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_attempt(_ATTEMPTS) | stop_when_event_set(stop),
        wait=wait_exponential(multiplier=1, max=30),
        sleep=sleep_using_event(stop),
        retry_error_callback=_failed,
    )
    documents: int = attempts(retry_policy.call, land, stop)
    return documents


def _may_pass(error: BaseException) -> bool:
    """Spark wraps whatever an executor met, so all but our own refusals may. If that was the source, the next attempt asks it first."""
    return isinstance(error, Exception) and not isinstance(error, StrandlineError)


def _failed(state: RetryCallState) -> NoReturn:
    cause = state.outcome.exception() if state.outcome is not None else None
    raise RetriableError(
        f"a snapshot chunk failed {state.attempt_number} times ({type(cause).__name__})",
        next_step="strandline capture: it goes on with the chunk",
    ) from cause
