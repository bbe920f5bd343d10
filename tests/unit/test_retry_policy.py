"""Retries, their limits and delays; verdicts on errors by code, phase and cause."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import errors as mongo

from strandline.control.logs import JsonFormatter
from strandline.errors import ConfigurationError, ContractError, ResumePointLost, RetriableError, StrandlineError
from strandline.io.delta_log.append_result import WriterEnded
from strandline.jobs.snapshot.chunk_retries import retry_chunk
from strandline.jobs.snapshot.plan import Chunk
from strandline.source.client import Collection
from strandline.source.errors import (
    CODES,
    CredentialsRefused,
    NoAnswer,
    Phase,
    SnapshotExpired,
    as_strandline_error,
    classify,
)
from strandline.source.ranges import Range
from strandline.source.retry_policy import Failures, RetryPolicy


class Clock(threading.Event):
    """Event whose waits take no time and are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return True


def run(
    retry_policy: RetryPolicy, outcomes: Iterator[Exception | None], *, progress: bool = False
) -> tuple[list[float], Exception | None]:
    """Return the delays of an operation with these *outcomes*, and its last error."""
    clock, failures = Clock(), Failures()

    def operation() -> None:
        error = next(outcomes)
        if progress:
            failures.clear()
        if error is not None:
            raise error

    try:
        retry_policy.call(operation, clock, failures)
    except RetriableError as error:
        return clock.waits, error
    return clock.waits, None


def run_sequence(retry_policy: RetryPolicy, steps: list[str]) -> tuple[list[float], Exception | None]:
    """Return the delays of an operation with these *steps*, and its last error."""
    clock, failures, left = Clock(), Failures(), iter(steps)

    def operation() -> None:
        while (event := next(left)) == PROGRESS:
            failures.clear()
        if event != SUCCESS:
            raise NoAnswer("x") if event == AWAY else RetriableError("x")

    try:
        retry_policy.call(operation, clock, failures)
    except RetriableError as error:
        return clock.waits, error
    return clock.waits, None


def failing(error: Exception, times: int) -> Iterator[Exception | None]:
    yield from [error] * times
    yield None


def test_delays_double_up_to_the_maximum() -> None:
    waits, error = run(RetryPolicy(), failing(RetriableError("x"), 10))
    assert waits == [1, 2, 4, 8, 16, 32, 64, 120, 120, 120]
    assert error is None


ELECTION, AWAY, PROGRESS, SUCCESS = "election", "away", "progress", "success"


# scenario: P04, P07
@pytest.mark.parametrize(
    ("retry_policy", "steps", "retries", "ends_with"),
    [
        (RetryPolicy(), [ELECTION] * 50, 50, None),
        (RetryPolicy(), [AWAY] * 15, 15, None),
        (RetryPolicy(), [AWAY] * 16, 15, AWAY),
        (RetryPolicy(), [*[ELECTION] * 15, AWAY], 16, None),
        (RetryPolicy(), [*[ELECTION] * 40, *[AWAY] * 15, ELECTION], 56, None),
        (RetryPolicy(), [*[AWAY, ELECTION] * 15, AWAY], 30, AWAY),
        (RetryPolicy(), [*[AWAY] * 15, PROGRESS, *[AWAY] * 15], 30, None),
        (RetryPolicy(connect_max_attempts=2), [AWAY] * 2, 1, AWAY),
        (RetryPolicy(connect_max_attempts=2), [AWAY, *[ELECTION] * 9, AWAY], 10, AWAY),
        (RetryPolicy(max_retries=3), [ELECTION] * 3, 3, None),
        (RetryPolicy(max_retries=3), [ELECTION] * 4, 3, ELECTION),
        (RetryPolicy(max_retries=0), [ELECTION], 0, ELECTION),
        (RetryPolicy(max_retries=0), [AWAY] * 5, 5, None),
        (RetryPolicy(max_retries=3), [AWAY, AWAY, AWAY, ELECTION, ELECTION, ELECTION], 6, None),
        (RetryPolicy(max_retries=3), [ELECTION] * 3 + [PROGRESS] + [ELECTION] * 3, 6, None),
        (RetryPolicy(max_retries=3), [ELECTION, AWAY] * 3 + [ELECTION], 6, ELECTION),
    ],
)
def test_each_limit_counts_its_own_kind_of_failure(
    retry_policy: RetryPolicy, steps: list[str], retries: int, ends_with: str | None
) -> None:
    waits, error = run_sequence(retry_policy, [*steps, SUCCESS])
    assert len(waits) == retries
    assert ends_with == (None if error is None else {NoAnswer: AWAY, RetriableError: ELECTION}[type(error)])


# scenario: G04
def test_progress_resets_the_count_and_the_wait() -> None:
    waits, error = run(RetryPolicy(max_retries=1), failing(RetriableError("x"), 30), progress=True)
    assert (waits, error) == ([1] * 30, None)


def test_other_errors_are_not_retried_and_stop_ends_a_delay() -> None:
    with pytest.raises(ConfigurationError):
        run(RetryPolicy(), iter([ConfigurationError("x")]))
    stop, errors = threading.Event(), iter([RetriableError("first"), RetriableError("second")])

    def attempt() -> str:
        error = next(errors, None)
        if error is not None:
            raise error
        return "answer"

    assert RetryPolicy(initial_delay_ms=1).call(attempt, stop) == "answer"
    errors = iter([RetriableError("first"), RetriableError("second")])
    stop.set()
    with pytest.raises(RetriableError, match="first"):
        RetryPolicy().call(attempt, stop)


_CHUNK = Chunk(0, Collection("shop", "orders", None), Range())


def run_chunk(
    *outcomes: Exception | None, retry_policy: RetryPolicy = RetryPolicy(), clock: Clock | None = None
) -> tuple[list[float], Exception | None]:
    """Return the delays of a snapshot chunk with these *outcomes*, and its last error."""
    clock, left = clock or Clock(), iter(outcomes)

    def once() -> int:
        error = next(left)
        if error is not None:
            raise error
        return 7

    try:
        assert retry_chunk(_CHUNK, once, retry_policy, clock) == 7
    except StrandlineError as error:
        return clock.waits, error
    return clock.waits, None


# scenario: P04
def test_a_chunk_retries_source_errors_as_the_stream_does_and_other_errors_five_times() -> None:
    away, broken = NoAnswer("x"), OSError("an executor is gone")
    assert run_chunk(*[away] * 9, None) == ([1, 2, 4, 8, 16, 32, 64, 120, 120], None)
    assert run_chunk(*[away] * 9, retry_policy=RetryPolicy(connect_max_attempts=3, max_delay_ms=1500)) == (
        [1, 1.5],
        away,
    )
    assert run_chunk(*[RetriableError("x")] * 9, retry_policy=RetryPolicy(max_retries=1))[0] == [1]
    assert run_chunk(*[broken] * 4, None) == ([1, 2, 4, 8], None)
    assert run_chunk(broken, *[away] * 6, broken, None) == ([1, 1, 2, 4, 8, 16, 32, 2], None)
    waits, failed = run_chunk(*[broken] * 5)
    assert (waits, str(failed)) == (
        [1, 2, 4, 8],
        "a snapshot chunk failed 5 times (OSError) → strandline capture: it retries the chunk",
    )


@pytest.mark.parametrize("error", [ContractError("dropped"), WriterEnded("the worker is gone")])
def test_a_chunk_that_is_rejected_or_has_no_writer_is_not_retried(error: StrandlineError) -> None:
    assert run_chunk(error) == ([], error)


@pytest.mark.parametrize("error", [NoAnswer("x"), OSError("x")])
def test_a_chunk_is_not_retried_after_the_snapshot_was_stopped(error: Exception) -> None:
    stopped = Clock()
    stopped.set()
    waits, last = run_chunk(error, clock=stopped)
    assert waits == []
    assert isinstance(last, RetriableError)


def operation(code: int) -> mongo.OperationFailure:
    return mongo.OperationFailure("secret text", code)


# scenario: G05
@pytest.mark.parametrize(
    ("code", "resuming", "otherwise"),
    [
        (286, "history_lost", "history_lost"),
        (280, "event_missing", "event_missing"),
        (7182504, "event_missing", "event_missing"),
        (260, "invalid_token", "terminal"),
        (50811, "invalid_token", "terminal"),
        (9, "invalid_token", "terminal"),
        (136, "retriable", "retriable"),
        (11000, "terminal", "terminal"),
        (10334, "oversize", "oversize"),
    ],
)
def test_a_token_is_rejected_only_when_a_stream_is_opened_at_it(code: int, resuming: str, otherwise: str) -> None:
    phases: tuple[Phase, ...] = ("resuming", "opening", "reading")
    assert [classify(operation(code), phase) for phase in phases] == [resuming, otherwise, otherwise]


# scenario: F07, J07
@pytest.mark.parametrize(
    ("code", "kind"),
    [(18, CredentialsRefused), (8000, CredentialsRefused), (286, ResumePointLost), (10334, ConfigurationError)],
)
def test_a_decisive_cause_behind_a_broken_connection_decides(code: int, kind: type[Exception]) -> None:
    outer = mongo.AutoReconnect("connection closed")
    middle = OSError("io")
    outer.__cause__, middle.__cause__ = middle, operation(code)
    error = as_strandline_error(outer, doing="reading")
    assert isinstance(error, kind)
    assert str(code) in str(error)
    if code == 10334:
        assert "16 MiB" in str(error)
        assert "cursor_oversize_handling_mode" in error.next_step


def test_every_code_has_a_next_step_and_only_retriable_codes_are_retried() -> None:
    for code, verdict in CODES.items():
        error = as_strandline_error(operation(code), doing="reading")
        assert isinstance(error, RetriableError) == (verdict == "retriable"), code
        assert error.next_step, code
        assert "secret" not in str(error)
    assert isinstance(as_strandline_error(mongo.ServerSelectionTimeoutError("host:1"), doing="reading"), NoAnswer)


def test_expired_snapshot_history_names_the_settings_that_help() -> None:
    error = as_strandline_error(operation(239), doing="reading shop.orders")
    assert type(error) is SnapshotExpired
    assert "snapshot_chunk_size" in str(error.next_step)
    assert "minSnapshotHistoryWindowInSeconds" in str(error.next_step)


def test_a_retry_is_logged_with_its_context_and_without_the_servers_text(caplog: pytest.LogCaptureFixture) -> None:
    error = as_strandline_error(operation(237), doing="reading")
    with caplog.at_level(logging.WARNING, "strandline.source"):
        run(RetryPolicy(), failing(error, 1))
    line: dict[str, Any] = json.loads(JsonFormatter().format(caplog.records[0]))
    assert line["context"] == {"stage": "read", "class": "RetriableError", "attempt": 1, "next_attempt_in_seconds": 1.0}
    assert "secret" not in json.dumps(line)
