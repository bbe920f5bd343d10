"""``python -m bench.proof``: load of the continuous proof on the source, and time until it finds a damaged row."""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.limits import COLLECTION, Client, insert
from bench.measure import print_line, settings_in
from strandline.control.proof import ProofStatus, ProofTable
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import LazyContext, open_silver_without_spark
from strandline.jobs.lake_opener import LakeOpener
from strandline.jobs.reconcile.continuous import ContinuousProof, prove_until
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.tables import TableName
from strandline.source.mongod import EmbeddedMongod


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.proof", description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, EmbeddedMongod(oplog_size_mb=2000) as server:
        settings = settings_in(Path(name), server.uri)
        with Client(server.uri) as client:
            insert(client, "bench", options.documents, seed=1)
        lake = open_silver_without_spark(settings)
        assert lake is not None
        ctx = LazyContext(settings, lake.tables, LakeOpener(settings).with_spark)
        run_capture(lake.for_capture(), once=True)
        run_silver(ctx)
        (source,) = map(psutil.Process, server.pids())
        measure(ctx, ContinuousProof(ctx, options.budget, repairs=False), source, options.trials)


def measure(ctx: LazyContext, proof: ContinuousProof, source: psutil.Process, trials: int) -> None:
    """Print the figures of one walk, then those of each damaged row. Each line is JSON."""
    stop, table = threading.Event(), ProofTable(ctx.tables, "bench")
    walk = threading.Thread(target=prove_until, args=(stop, proof, lambda _: None))

    def wait(holds: Callable[[ProofStatus], bool]) -> float:
        began = time.monotonic()
        while (status := table.status()) is None or not holds(status):
            time.sleep(0.2)
        return time.monotonic() - began

    processes = {"source": source, "process": psutil.Process()}
    before = {who: sum(process.cpu_times()[:2]) for who, process in processes.items()}
    walk.start()
    seconds = wait(lambda status: status.unproven == 0)
    cores = {who: round((sum(one.cpu_times()[:2]) - before[who]) / seconds, 3) for who, one in processes.items()}
    print_line({"walk, s": round(seconds, 1), "budget": proof.budget, "cores": cores})
    silver, chance = TableName("silver", COLLECTION), random.Random(1)
    keys = ctx.tables.folder(silver).table().to_pyarrow_table(columns=["_key"])["_key"]
    for number in range(trials):
        key = keys[chance.randrange(len(keys))].as_py()
        ctx.tables.delete_rows(silver, ("_key", "=", key))
        print_line({"seconds until the damaged row was found": round(wait(lambda one: one.differences > number), 1)})  # noqa: B023  # why: called at once
    stop.set()
    walk.join()


if __name__ == "__main__":
    main()
