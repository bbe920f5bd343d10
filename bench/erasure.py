"""``python -m bench.erasure``: cost of erasing documents from a lake, by number of documents and size of the lake."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from bench.limits import COLLECTION, Client, insert
from bench.measure import print_line, settings_in
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.erase.run_erase import run_erase
from strandline.jobs.erase.verify import find_values
from strandline.jobs.lake_opener import LakeOpener
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.silver.run_silver import run_silver
from strandline.source.mongod import EmbeddedMongod

R = TypeVar("R")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.erasure", description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--erased", type=int, nargs="+", default=[1, 1, 100, 10_000], help="documents of each erasure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, EmbeddedMongod(oplog_size_mb=2000) as server:
        opener = LakeOpener(settings_in(Path(name), server.uri))
        with Client(server.uri) as client:
            insert(client, "bench", options.documents, seed=1)
            run_capture(opener.for_capture(), once=True)
            run_silver(opener.for_silver())
            measure(client, opener, options.erased)


def measure(client: Client, opener: LakeOpener, sizes: list[int]) -> None:
    """Print the cost of an erasure of each size, of a run of `maintain` after them, and of a search. Lines of JSON."""
    ctx, collection = opener.with_spark(), client["bench"][COLLECTION]
    root = Path(ctx.settings.lake.root or "")
    show("start of Spark", 0, lambda: ctx.spark.range(1).count())
    for number in sizes:
        identifiers = [document["_id"] for document in collection.find({}, {"_id": 1}).limit(number)]
        collection.delete_many({"_id": {"$in": identifiers}})
        collection.insert_one({"after": number})
        run_capture(ctx, once=True)
        run_silver(ctx)
        keys, before = [json.dumps({"$oid": str(one)}) for one in identifiers], written(root)
        show("erase", number, lambda: run_erase(ctx, f"bench.{COLLECTION}", keys=keys, by="bench", dry_run=False))  # noqa: B023  # why: called at once
        print_line({"MB written": round(written(root) - before)})
    show("maintain after erasures", sum(sizes), lambda: run_maintain(ctx))
    print_line({"MB of the lake": round(written(root))})
    show("erase verify", 1, lambda: find_values(ctx.settings, [str(identifiers[0])]))


def written(root: Path) -> float:
    """Return the megabytes of all files below a folder."""
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) / 1e6


def show(step: str, documents: int, call: Callable[[], R]) -> R:
    """Call, and print seconds, and CPU seconds of this process and of the JVM."""
    began, cpu = time.monotonic(), cpu_seconds()
    result = call()
    seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
    print_line({"step": step, "documents": documents, "seconds": round(seconds, 1), "CPU s": round(cpu, 1)})
    return result


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children, but mongod."""
    own = psutil.Process()
    processes = [own, *(child for child in own.children(recursive=True) if "mongod" not in child.name())]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


if __name__ == "__main__":
    main()
