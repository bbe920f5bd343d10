"""Checks of the workers: what each executor of the session has, and what it reaches. Nothing is written."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import strandline
from strandline.errors import strandline_error
from strandline.jobs.context import JobContext
from strandline.jobs.source_connection import connection_options
from strandline.source import worker_probe
from strandline.source.uri import tls_files

_TASK_SECONDS: Final = 1.0
"""Minimum duration of a task: while it lasts, the next task goes to another core."""
_ROUNDS: Final = 5
_ROWS: Final = 10_000


@dataclass(frozen=True)
class Worker:
    """Answer of one executor."""

    place: str
    found: str
    problems: list[str]

    def __str__(self) -> str:
        return f"{self.place}: {'; '.join([*self.problems, self.found])}"


def diagnose_workers(ctx: JobContext) -> list[Worker]:
    """Ask every executor for its packages, the files that the URI names, MongoDB and its clock.

    I/O: runs tasks until no new executor answers; each sends two commands to MongoDB.

    Raises:
        ConfigurationError: A worker cannot run Python's functions at all.
    """
    uri = connection_options(ctx.settings).uri
    driver, _ = worker_probe.clock(uri)
    return [_judged(answer, driver) for answer in _answers(ctx.spark, uri)]


def _answers(spark: SparkSession, uri: str) -> list[dict[str, Any]]:
    """Return one answer for each executor. Spark names no executors, so tasks go to all cores, several times."""
    files, seconds, probe = tls_files(uri), _TASK_SECONDS, worker_probe.probe

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            continue
        end = time.monotonic() + seconds
        text = json.dumps(probe(uri, files))
        time.sleep(max(0.0, end - time.monotonic()))
        yield pa.RecordBatch.from_pydict({"answer": [text]})

    answers: dict[tuple[str, int], dict[str, Any]] = {}
    # A worker that lacks this package answers, too.
    cloudpickle.register_pickle_by_value(worker_probe)  # type: ignore[no-untyped-call]  # why: it has no types
    try:
        for _ in range(_ROUNDS):
            before = len(answers)
            for row in spark.range(_ROWS).mapInArrow(answer, "answer STRING").collect():  # one task for each core
                one = json.loads(row["answer"])
                answers[one["host"], one["process"]] = one
            if before == len(answers):
                break
    except PySparkException as error:
        raise strandline_error(error) or error from error
    finally:
        cloudpickle.unregister_pickle_by_value(worker_probe)  # type: ignore[no-untyped-call]  # why: as above
    return [answers[place] for place in sorted(answers)]


def _judged(answer: dict[str, Any], driver: float | None) -> Worker:
    packages = dict(answer["packages"])
    version = packages.pop("strandline")
    problems = [f"it lacks the Python package {name}" for name, release in packages.items() if release is None]
    if version != strandline.__version__:
        has = "it lacks this package (strandline)" if version is None else f"it has strandline {version}"
        problems.insert(0, f"{has}; this process has {strandline.__version__}")
    ahead = answer["ahead"]
    facts = [f"strandline {version}" if version else "", f"Python {answer['python']}"]
    facts += [f"{name} {release}".strip() for name, release in packages.items() if release is not None]
    facts += ["MongoDB answers" if ahead is not None else ""]
    facts += [f"clock {1000 * (ahead - driver):+.0f} ms" if ahead is not None and driver is not None else ""]
    return Worker(
        f"{answer['host']}, process {answer['process']}",
        ", ".join(filter(None, facts)),
        [*problems, *answer["problems"]],
    )
