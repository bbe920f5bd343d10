"""Latency of a slow stream: time from a write in the source until the change is readable in bronze."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bson

from bench.landing import ENGINES, SOURCE, Landing
from bench.limits import COLLECTION, Client
from strandline.io.delta_log.table_folder import commit_name
from strandline.io.tables.increments import rows_appended
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.model.table_schemas import bronze_table

RATE = 100
"""Changes per second."""
_UNCOUNTED = 10
"""Warm-up seconds of the JVM and the workers, not counted."""
_PATIENCE = 60


@dataclass(frozen=True)
class Trickle:
    """Latencies of one engine: seconds from the client call to the bronze commit, per change after the warm-up."""

    engine: str
    waits: tuple[float, ...]
    commits: int

    @property
    def median(self) -> float:
        return statistics.median(self.waits)

    def within(self, share: float) -> float:
        """Return the seconds within which *share* of the changes were readable."""
        return share_within(self.waits, share)


def compare(client: Client, uri: str, folder: Path, *, seconds: int) -> list[Trickle]:
    """Measure the latency of each engine, one after the other."""
    return [trickle(client, uri, folder, engine, seconds) for engine in ENGINES]


def trickle(client: Client, uri: str, folder: Path, engine: str, seconds: int) -> Trickle:
    """Measure the latency of one engine: capture while single changes are written.

    Raises:
        RuntimeError: The capture failed, or changes were missing in bronze 60 seconds after the last write.
    """
    name = f"trickle-{engine}"
    ctx = Landing(uri, name, folder / name).context(snapshot_mode="no_data", engine=engine)
    run_capture(ctx, once=True)
    begun = ctx.tables.version(bronze_table(SOURCE))
    with _capturing(ctx):
        started = time.time()
        total = (seconds + _UNCOUNTED) * RATE
        for number in at_rate(total):
            client[name][COLLECTION].insert_one({"_id": number, "at": time.time()})
        _await(ctx, total)
    table = bronze_table(SOURCE)
    newest = ctx.tables.version(table)
    rows = (
        rows_appended(ctx.tables, table, begun + 1, newest)
        .where("op = 'c'")
        .select("envelope", "_commit_version")
        .collect()
    )
    waits = []
    for row in rows:
        at = bson.decode(row["envelope"])["fullDocument"]["at"]
        if at - started > _UNCOUNTED:
            waits.append(_committed_at(ctx, row["_commit_version"]) - at)
    return Trickle(engine, tuple(waits), newest - begun)


def at_rate(count: int) -> Iterator[int]:
    """Yield the numbers below *count*, `RATE` of them per second."""
    started = time.time()
    for number in range(count):
        yield number
        time.sleep(max(0.0, started + (number + 1) / RATE - time.time()))


def share_within(waits: Sequence[float], share: float) -> float:
    """Return the seconds within which *share* of the *waits* ended."""
    return sorted(waits)[int(share * (len(waits) - 1))]


def _committed_at(ctx: JobContext, version: int) -> float:
    """Return the time at which the commit file was written. It gets its final name at once."""
    return (Path(ctx.tables.lake.path(bronze_table(SOURCE))) / commit_name(version)).stat().st_mtime


def _await(ctx: JobContext, total: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while ctx.tables.read(bronze_table(SOURCE)).where("op = 'c'").count() < total:
        if time.monotonic() > deadline:
            raise RuntimeError(f"a trickle of {total} changes is not in bronze {_PATIENCE} seconds after its end")
        time.sleep(1)


@contextmanager
def _capturing(ctx: JobContext) -> Iterator[None]:
    """Run a capture in another thread until the end of the block."""
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
