"""``python -m bench.sizing``: what each step costs as a collection grows, for docs/sizing.md.

For some sizes of one collection: a snapshot, the first silver run, a silver run after a fixed number of changes, and a
reconcile, all by Spark. Spark's event log holds the time and the shuffled bytes of every task. The slope is the
difference between the largest and the smallest size, for each GB of BSON. What remains at size 0 is the fixed part.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import bson
from bson import ObjectId
from pymongo import UpdateOne

from bench.limits import COLLECTION, Client, insert
from bench.measure import print_line
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext, open_context
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.plan import Chunk, Plan
from strandline.settings.configuration import Settings
from strandline.source.client import Collection
from strandline.source.mongod import EmbeddedMongod
from strandline.source.ranges import Range

CHANGES: Final = 1_000


@dataclass
class Step:
    """One step at one size, and its tasks from Spark's event log."""

    name: str
    documents: int
    begun: float
    ended: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, task: dict[str, Any]) -> None:
        metrics = task.get("Task Metrics")
        if not metrics or not self.begun <= task["Task Info"]["Launch Time"] / 1000 <= self.ended:
            return
        shuffle = metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
        found = {"tasks s": metrics["Executor Run Time"] / 1000, "shuffled MB": shuffle / 1e6, "tasks": 1}
        found["spilled MB"] = metrics["Disk Bytes Spilled"] / 1e6
        for name, value in found.items():
            self.figures[name] = self.figures.get(name, 0.0) + value


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sizing", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50_000, 100_000, 200_000])
    options = parser.parse_args()
    print_line(plan_slope())
    with tempfile.TemporaryDirectory() as name, EmbeddedMongod(oplog_size_mb=2000) as server:
        folder = Path(name)
        (folder / "events").mkdir()
        steps: list[Step] = []
        with Client(server.uri) as client:
            for number, size in enumerate([min(options.sizes) // 2, *options.sizes]):
                found, ctx = measured(client, server.uri, folder, f"size{number}", size)
                steps += found if number else []  # the first one warms up
        ctx.spark.stop()
        (log,) = (folder / "events").iterdir()
        for line in log.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            for step in steps if event["Event"] == "SparkListenerTaskEnd" else ():
                step.add(event)
        for step in steps:
            rounded = {key: round(value, 2) for key, value in sorted(step.figures.items())}
            print_line({"step": step.name, "documents": step.documents, **rounded})


def measured(client: Client, uri: str, folder: Path, database: str, size: int) -> tuple[list[Step], JobContext]:
    """Return the steps for one collection of *size* documents, in a new lake."""
    insert(client, database, size, seed=1)
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.rolling.enabled": "false"}
    events |= {"spark.eventLog.compress": "false", "spark.eventLog.dir": (folder / "events").as_uri()}
    settings = Settings(
        source={"name": "bench", "uri": uri},
        capture={"scope": "database", "target": database, "snapshot_chunk_size": 25_000},
        engine="spark",
        lake={"root": str(folder / database)},
        spark={"conf": events},
    )
    ctx, steps = open_context(settings), []

    def step(name: str, work: Callable[[], object]) -> None:
        with watched(name, size) as one:
            work()
        one.figures["lake MB"] = sum(file.stat().st_size for file in (folder / database).rglob("*.parquet")) / 1e6
        steps.append(one)

    mean = sum(len(bson.encode(one)) for one in client[database][COLLECTION].find(limit=1000)) / 1000
    step("snapshot", lambda: run_capture(ctx, once=True))
    step("first silver run", lambda: run_silver(ctx))
    every = max(1, size // CHANGES)
    changes = [UpdateOne({"seq": seq}, {"$inc": {"score": 1}}) for seq in range(0, CHANGES * every, every)]
    client[database][COLLECTION].create_index("seq")
    client[database][COLLECTION].bulk_write(changes, ordered=False)
    step("capture of 1,000 changes", lambda: run_capture(ctx, once=True))
    step("silver run of 1,000 changes", lambda: run_silver(ctx))
    step("reconcile", lambda: run_reconcile(ctx))
    for one in steps:
        one.figures["BSON MB"] = mean * size / 1e6
    return steps, ctx


@contextmanager
def watched(name: str, size: int) -> Iterator[Step]:
    """Measure the seconds of the block."""
    one = Step(name, size, time.time())
    yield one
    one.ended = time.time()
    one.figures["seconds"] = one.ended - one.begun


def plan_slope() -> dict[str, float]:
    """Return what one chunk of a plan costs: bytes of memory, and bytes in bronze."""
    at: dict[int, tuple[int, int]] = {}
    for count in (10_000, 40_000):
        tracemalloc.start()
        bounds = [bson.encode({"_id": ObjectId()}) for _ in range(count)]
        place = Collection("shop", "orders", "0" * 32)
        ranges = zip([None, *bounds], [*bounds, None], strict=True)
        plan = Plan(tuple(Chunk(number, place, Range(*each)) for number, each in enumerate(ranges)), 2)
        at[count] = (tracemalloc.get_traced_memory()[0], len(plan.to_json()))
        tracemalloc.stop()
    return {
        "plan: bytes of memory for each chunk": (at[40_000][0] - at[10_000][0]) / 30_000,
        "plan: bytes in bronze for each chunk": (at[40_000][1] - at[10_000][1]) / 30_000,
    }


if __name__ == "__main__":
    main()
