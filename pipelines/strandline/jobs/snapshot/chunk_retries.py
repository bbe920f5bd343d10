"""Retries of a snapshot chunk."""

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

from strandline.errors import RetriableError, StrandlineError, strandline_error
from strandline.io.telemetry.tracing import annotate, span
from strandline.jobs.snapshot.plan import Chunk
from strandline.source.retry_policy import RetryPolicy

_ATTEMPTS = 5


def retry_chunk(chunk: Chunk, read_chunk: Callable[[], int], retry_policy: RetryPolicy, stop: threading.Event) -> int:
    """Return the result of *read_chunk*: the number of documents. Retry errors that may pass.

    I/O: that of *read_chunk*. Errors of the source are retried by *retry_policy*, as in the stream. All other errors,
    except `StrandlineError`, get five attempts.

    Args:
        stop: Ends a wait early. The next failure is then the last attempt.

    Raises:
        RetriableError: All attempts failed.
        StrandlineError: An error of Strandline's own, such as `ConfigurationError`. It is not retried.
    """
    attempts = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_attempt(_ATTEMPTS) | stop_when_event_set(stop),
        wait=wait_exponential(multiplier=1, max=30),
        sleep=sleep_using_event(stop),
        retry_error_callback=_failed,
    )
    with span("snapshot chunk", collection=str(chunk.collection), chunk=chunk.number):
        documents: int = attempts(retry_policy.call, read_chunk, stop)
        annotate(documents=documents)
    return documents


def _may_pass(error: BaseException) -> bool:
    """Return True for every error except our own: Spark hides an executor's error, and another attempt may succeed."""
    return isinstance(error, Exception) and not isinstance(error, StrandlineError)


def _failed(state: RetryCallState) -> NoReturn:
    cause = state.outcome.exception() if state.outcome is not None else None
    own_error = strandline_error(cause) if cause is not None else None
    why = type(cause).__name__ if own_error is None else own_error.message
    raise RetriableError(
        f"a snapshot chunk failed {state.attempt_number} times ({why})",
        next_step="strandline capture: it retries the chunk",
    ) from cause
