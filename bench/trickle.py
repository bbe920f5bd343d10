"""A trickle: how long after it was written in the source a change can be read in bronze."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bson

from bench.landing import ENGINES, SOURCE, Landing
from bench.limits import COLLECTION, Client
from pipelines.io.commits import LogFolder
from pipelines.io.increments import inserted
from pipelines.jobs.capture.job import run_capture
from pipelines.jobs.context import JobContext
from pipelines.model.table_schemas import bronze_table

RATE = 100
"""Changes a second."""
_UNCOUNTED = 10
"""Seconds at the beginning, in which the JVM and the workers warm up."""
_PATIENCE = 60


@dataclass(frozen=True)
class Trickle:
    """Seconds from the client's call to the commit of bronze that holds the change, of each change after the first seconds."""

    engine: str
    waits: tuple[float, ...]
    commits: int

    @property
    def median(self) -> float:
        return statistics.median(self.waits)

    def within(self, share: float) -> float:
        """Seconds after which *share* of the changes could be read."""
        return sorted(self.waits)[int(share * (len(self.waits) - 1))]


def compare(client: Client, uri: str, folder: Path, *, seconds: int) -> list[Trickle]:
    """I/O: the same trickle for each engine, one after the other."""
    return [trickle(client, uri, folder, engine, seconds) for engine in ENGINES]


def trickle(client: Client, uri: str, folder: Path, engine: str, seconds: int) -> Trickle:
    """I/O: captures while changes trickle in.

    Raises:
        RuntimeError: The capture failed, or changes were not in bronze long after they were written.
    """
    name = f"trickle-{engine}"
    ctx = Landing(uri, name, folder / name).context(snapshot_mode="no_data", engine=engine)
    run_capture(ctx, once=True)
    begun = ctx.tables.version(bronze_table(SOURCE))
    with _capturing(ctx):
        started = time.time()
        total = (seconds + _UNCOUNTED) * RATE
        for number in range(total):
            client[name][COLLECTION].insert_one({"_id": number, "at": time.time()})
            time.sleep(max(0.0, started + (number + 1) / RATE - time.time()))
        _await(ctx, total)
    table = bronze_table(SOURCE)
    newest = ctx.tables.version(table)
    rows = (
        inserted(ctx.tables, table, begun + 1, newest).where("op = 'c'").select("envelope", "_commit_version").collect()
    )
    waits = []
    for row in rows:
        at = bson.decode(row["envelope"])["fullDocument"]["at"]
        if at - started > _UNCOUNTED:
            waits.append(_committed_at(ctx, row["_commit_version"]) - at)
    return Trickle(engine, tuple(waits), newest - begun)


def _committed_at(ctx: JobContext, version: int) -> float:
    """When the commit's file was written; it then takes its name at once."""
    return LogFolder(Path(ctx.tables.lake.path(bronze_table(SOURCE))) / "_delta_log").file(version).stat().st_mtime


def _await(ctx: JobContext, total: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while ctx.tables.read(bronze_table(SOURCE)).where("op = 'c'").count() < total:
        if time.monotonic() > deadline:
            raise RuntimeError(f"a trickle of {total} changes is not in bronze {_PATIENCE} seconds after its end")
        time.sleep(1)


@contextmanager
def _capturing(ctx: JobContext) -> Iterator[None]:
    """A capture in another thread; it ends with the block."""
    stop, ended = threading.Event(), list[object]()
    running = threading.Thread(target=lambda: ended.append(run_capture(ctx, stop=stop)))
    running.start()
    try:
        yield
    finally:
        stop.set()
        running.join()
    if not ended:
        raise RuntimeError("the capture failed")
