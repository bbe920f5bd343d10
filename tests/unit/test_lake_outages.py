"""Which failures are the lake's, and how often a capture is begun again because of one."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from deltalake.exceptions import CommitFailedError

from strandline.errors import ConfigurationError, FencedError, LakeUnavailable
from strandline.io.delta_log.append_result import WriterEnded
from strandline.io.spark.storage_failures import lake_unavailable
from strandline.io.telemetry.live_state import CaptureState
from strandline.jobs.capture.lake_outages import LakeOutages
from strandline.source.errors import NoAnswer
from strandline.source.retry_policy import RetryPolicy

QUICK = RetryPolicy(connect_max_attempts=3, initial_delay_ms=1, max_delay_ms=1)
JAVA = "An error occurred while calling o1.append.\n: org.apache.spark.SparkException: Job aborted.\n"


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        CommitFailedError("Generic S3 error"),
        RuntimeError(f"{JAVA}Caused by: java.io.IOException: No space left on device\n\tat java.base/x.y(Z.java:1)"),
        RuntimeError(f"{JAVA}Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device"),
        RuntimeError(
            f"{JAVA}Lost task 0.0 (TID 9) (host executor driver): java.io.IOException: No space left on device"
        ),
        RuntimeError(f"{JAVA}Caused by: software.amazon.awssdk.core.exception.SdkClientException: Unable to execute"),
        RuntimeError(f"{JAVA}Caused by: org.apache.hadoop.fs.s3a.AWSClientIOException: Writing Object on b"),
    ],
)
def test_a_failure_of_the_storage_is_retriable_and_one_line(error: Exception) -> None:
    found = lake_unavailable(error)
    assert found is not None
    assert found.exit_code == 75
    assert "\n" not in str(found)


def java_exception(name: str, said: str, cause: SimpleNamespace | None = None) -> SimpleNamespace:
    """Return a stand-in for a Java exception behind py4j: class name, cause, and text as Java prints it."""
    kind = SimpleNamespace(getName=lambda: name)
    return SimpleNamespace(getClass=lambda: kind, getCause=lambda: cause, toString=lambda: f"{name}: {said}")


class SparkFailure(RuntimeError):
    """An error of a Spark job with the Java exception that py4j gives to Python."""

    def __init__(self, text: str, java: SimpleNamespace) -> None:
        super().__init__(text)
        self.java_exception = java


def test_a_lake_failure_quotes_the_storage_and_not_spark() -> None:
    full = java_exception("java.io.IOException", "No space left on device")
    outer = java_exception("org.apache.hadoop.fs.FSError", full.toString(), full)
    error = SparkFailure(
        "[TASK_WRITE_FAILED] Task failed while writing rows to file:/lake.",
        java_exception("org.apache.spark.SparkException", "Task failed", outer),
    )
    text = RuntimeError(
        f"{JAVA}Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat x"
    )
    for each in (error, text):
        assert "(No space left on device)" in str(lake_unavailable(each))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("java.io.IOException is only a value here"),
        RuntimeError(f"{JAVA}Caused by: java.lang.NullPointerException: null"),
        RuntimeError(f"{JAVA}Caused by: java.io.FileNotFoundException: part-1.parquet"),
        FencedError("another writer"),
        WriterEnded("replaced"),
        NoAnswer("the source is away"),
    ],
)
def test_another_failure_is_not_taken_for_one_of_the_storage(error: Exception) -> None:
    assert lake_unavailable(error) is None


class Capture:
    """Fails in each attempt until the last of *ends*. Each attempt commits so often."""

    def __init__(self, outages: LakeOutages, *ends: Exception | int, commits: int = 0) -> None:
        self.outages, self.ends, self.commits, self.seen = outages, list(ends), commits, list[bool]()

    def __call__(self, is_retry: bool) -> int:
        self.seen.append(is_retry)
        self.outages.begun = True
        for _ in range(self.commits):
            self.outages.state.committed()
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


def test_attempts_are_bounded_and_progress_resets_their_number() -> None:
    full = [OSError(28, "No space left on device") for _ in range(5)]
    outages = LakeOutages(QUICK, threading.Event(), CaptureState())
    capture = Capture(outages, *full)
    with pytest.raises(LakeUnavailable):
        outages.retry(capture)
    assert capture.seen == [False, True, True]
    outages = LakeOutages(QUICK, threading.Event(), CaptureState())
    assert outages.retry(Capture(outages, *full, 7, commits=1)) == 7


def test_a_failure_before_bronze_was_open_another_failure_and_a_stop_are_not_retried() -> None:
    def refused(is_retry: bool) -> int:
        raise LakeUnavailable("no place") if not is_retry else AssertionError("not again")

    with pytest.raises(LakeUnavailable):
        LakeOutages(QUICK, threading.Event(), CaptureState()).retry(refused)
    for error in (ConfigurationError("wrong"), NoAnswer("the source is away")):
        outages = LakeOutages(QUICK, threading.Event(), CaptureState())
        with pytest.raises(type(error)):
            outages.retry(Capture(outages, error))
    stop = threading.Event()
    stop.set()
    outages = LakeOutages(QUICK, stop, CaptureState())
    with pytest.raises(LakeUnavailable):
        outages.retry(Capture(outages, OSError(28, "No space left on device")))


def test_the_lag_is_unknown_at_first_and_never_goes_back() -> None:
    state = CaptureState()
    assert state.behind_seconds is None
    state.completed_until(10.0)
    state.completed_until(5.0)
    assert state.complete_until == 10.0
