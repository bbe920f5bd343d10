"""``make bench``: throughput compared with the limit of the same server, and the cost of a run as tables grow."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from bench import (
    capture,
    commands,
    compaction,
    decoding,
    figures,
    open_tables,
    recovery,
    report,
    service,
    silver,
    snapshot,
    sustained,
    trickle,
)
from bench.documents import LARGE, large_documents
from bench.landing import ENGINES, Landing
from bench.limits import Client, insert, insert_all, now
from bench.measure import Measurement
from strandline.source.mongod import EmbeddedMongod

_WITH_SPARK = ("events", "documents", "large", "trickle", "recovery", "silver", "open_tables", "layouts")
_PARTS = (*_WITH_SPARK, "decoding", "commands", "figures", "sustained", "service", "compaction")


def main() -> None:
    options = arguments()
    console = Console(width=150, stderr=options.json)
    record: dict[str, Any] = {}
    if options.decoding:
        console.print(f"decoding: {options.decoding:,} documents …")
        decoded = list(decoding.compare(options.decoding, rounds=options.rounds, seed=options.seed))
        console.print(report.decoding_table(decoded))
        record["decoding"] = [asdict(one) for one in decoded]
    with tempfile.TemporaryDirectory() as name:
        if options.compaction:
            console.print(f"compaction: {options.compaction:,} events …")
            costs = list(compaction.compare(Path(name), events=options.compaction, seed=options.seed))
            console.print(report.compaction_table(costs))
            record["compaction"] = [asdict(one) for one in costs]
        if options.commands:
            record["commands"] = whole_commands(options, Path(name), console)
        if options.figures:
            record["figures"] = beside_peers(options, Path(name), console)
        if options.sustained:
            record["sustained"] = sustained_rate(options, Path(name), console)
        if options.service:
            record["service"] = running_service(options, Path(name), console)
        if any(getattr(options, part) for part in _WITH_SPARK):
            record |= with_spark(options, Path(name), console)
    if options.json:
        Console().print_json(json.dumps(record))


def with_spark(options: argparse.Namespace, folder: Path, console: Console) -> dict[str, Any]:
    """Measure the parts for which this process has a Spark session. Return the measurements."""
    record, spark = dict[str, Any](), session(folder, console)
    if options.events or options.documents:
        record |= throughput(options, folder, console)
    if options.large or options.trickle:
        record |= extremes(options, folder, console)
    if options.recovery:
        console.print(f"recovery: bronze of 10,000 and of {options.recovery:,} rows …")
        recovered = recovery.compare(spark, folder, rows=options.recovery, rounds=options.rounds)
        console.print(report.recovery_table(recovered))
        record["recovery"] = [asdict(one) for one in recovered]
    if options.silver:
        console.print(f"silver: tables of up to {options.silver:,} rows …")
        compared = list(silver.compare(spark, folder, rows=options.silver, rounds=options.rounds))
        for shown in report.silver_tables(compared):
            console.print(shown)
        record["silver"] = [asdict(one) for one in compared]
    if options.open_tables or options.layouts:
        record |= of_open_tables(options, spark, folder, console)
    return record


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--events", type=int, default=400_000, help="events in the capture backlog; 0: skip")
    parser.add_argument("--documents", type=int, default=2_000_000, help="documents in the snapshot; 0: skip")
    parser.add_argument("--decoding", type=int, default=40_000, help="documents to count and decode; 0: skip")
    parser.add_argument(
        "--commands",
        type=int,
        default=1_000_000,
        help="documents of whole commands, and two fifths as many events; 0: skip",
    )
    parser.add_argument(
        "--warm-up", type=int, default=400_000, help="documents of each warm-up run, which is not counted"
    )
    parser.add_argument("--large", type=int, default=100, help="documents of 10 MB, to measure peak memory; 0: skip")
    parser.add_argument("--trickle", type=int, default=60, help="seconds with 100 changes per second; 0: skip")
    parser.add_argument(
        "--figures", type=int, default=1_000_000, help="documents of commands beside other tools; 0: skip"
    )
    parser.add_argument(
        "--peers", type=Path, help="virtual environment with PyMongoArrow, delta-rs and dlt. Default: they are left out"
    )
    parser.add_argument(
        "--sustained", type=int, default=600, help="seconds at the highest rate that is sustained; 0: skip"
    )
    parser.add_argument("--trial", type=int, default=30, help="seconds at each rate that is tried before")
    parser.add_argument("--service", type=int, default=60, help="seconds of an idle service; 0: skip")
    parser.add_argument("--busy", type=int, default=60, help="seconds of a busy service, at least 12")
    parser.add_argument(
        "--recovery", type=int, default=10_000_000, help="rows of the large bronze table in the recovery test; 0: skip"
    )
    parser.add_argument("--compaction", type=int, default=4_000_000, help="events of bronze to compact; 0: skip")
    parser.add_argument("--silver", type=int, default=4_000_000, help="rows of the largest silver table; 0: skip")
    parser.add_argument(
        "--open-tables",
        type=int,
        default=4_000_000,
        help="rows of the larger portable and native silver tables; 0: skip",
    )
    parser.add_argument("--layouts", type=int, default=10_000_000, help="rows of the test of layouts; 0: skip")
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="rounds of decoding (the best is reported), of figures, recovery and silver (the median)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument("--only", default="", help="parts to measure, such as figures,sustained. Default: all")
    options = parser.parse_args()
    wanted = options.only.replace("-", "_").split(",") if options.only else _PARTS
    if unknown := set(wanted) - set(_PARTS):
        parser.error(f"--only: there is no part {', '.join(sorted(unknown))}")
    vars(options).update(dict.fromkeys(set(_PARTS) - set(wanted), 0))
    return options


def whole_commands(options: argparse.Namespace, folder: Path, console: Console) -> list[dict[str, Any]]:
    """Measure commands in processes of their own, before this process has a JVM. Return the measurements."""
    console.print(f"commands: {options.commands:,} documents …")
    with EmbeddedMongod(oplog_size_mb=4000) as server, Client(server.uri) as client:
        found = commands.compare(
            client,
            server.uri,
            folder,
            documents=options.commands,
            events=options.commands * 2 // 5,
            seed=options.seed,
        )
    console.print(report.commands_table(found))
    return [asdict(one) for one in found]


def beside_peers(options: argparse.Namespace, folder: Path, console: Console) -> list[dict[str, Any]]:
    """Measure commands beside other tools, each in a process of its own. Return the measurements."""
    console.print(f"figures: {options.figures:,} documents, {options.rounds} rounds …")
    with EmbeddedMongod(oplog_size_mb=1000) as server, Client(server.uri) as client:
        found = figures.compare(
            client,
            server.uri,
            folder,
            documents=options.figures,
            rounds=options.rounds,
            peers=options.peers,
            seed=options.seed,
        )
    console.print(report.figures_table(found))
    return [asdict(one) for one in found]


def sustained_rate(options: argparse.Namespace, folder: Path, console: Console) -> list[dict[str, Any]]:
    """Find the rate of changes that ``strandline run`` sustains. Return the measurements."""
    console.print(f"sustained: {options.trial} s at each rate, then {options.sustained} s …")
    found = []
    # The cache of tests is half a gigabyte: with it, the server writes the changed pages of a million documents again
    # and again, and takes twice the CPU time.
    cache = ["--wiredTigerEngineConfigString", "cache_size=4G"]
    with EmbeddedMongod(oplog_size_mb=4000, extra_args=cache) as server, Client(server.uri) as client:
        for one in sustained.compare(client, server.uri, folder, trial=options.trial, seconds=options.sustained):
            console.print(f"{one.engine}: {one.rate:,} changes/s, 95 % within {one.p95:.1f} s")
            found.append(one)
    console.print(report.sustained_table(found))
    return [asdict(one) for one in found]


def running_service(options: argparse.Namespace, folder: Path, console: Console) -> dict[str, Any]:
    """Measure ``strandline run`` in a process of its own. Return the measurements."""
    console.print(f"service: {options.service} s idle, then {options.busy} s with {trickle.RATE} changes a second …")
    with EmbeddedMongod(oplog_size_mb=1000) as server, Client(server.uri) as client:
        found = service.measure(client, server.uri, folder, idle=options.service, busy=options.busy)
    console.print(report.service_table(found))
    shares = {"median": found.median, "p95": found.within(0.95), "p99": found.within(0.99)}
    return {name: value for name, value in asdict(found).items() if name != "to_silver"} | shares


def of_open_tables(options: argparse.Namespace, spark: SparkSession, folder: Path, console: Console) -> dict[str, Any]:
    """Measure portable and native tables, and layouts. Return the measurements."""
    kinds, layouts = list[open_tables.KindCost](), list[open_tables.LayoutCost]()
    if options.open_tables:
        console.print(f"open tables: {options.open_tables:,} rows …")
        kinds += open_tables.compare_kinds(spark, folder, rows=options.open_tables, rounds=options.rounds)
        console.print(report.kinds_table(kinds))
    if options.layouts:
        console.print(f"layouts: {options.layouts:,} rows …")
        layouts += open_tables.compare_layouts(spark, folder, rows=options.layouts)
        console.print(report.layouts_table(layouts))
    return {"kinds": [asdict(one) for one in kinds], "layouts": [asdict(one) for one in layouts]}


def session(folder: Path, console: Console) -> SparkSession:
    """Start the Spark session and print its start time."""
    console.print("starting Spark …")
    started = time.perf_counter()
    spark = Landing("mongodb://nowhere", "nothing", folder / "session").context().spark
    spark.range(1).collect()
    console.print(f"session: {time.perf_counter() - started:.1f} s")
    return spark


def throughput(options: argparse.Namespace, folder: Path, console: Console) -> dict[str, Any]:
    """Measure capture and snapshot, each compared with the limit of the same server. Return the measurements."""
    pairs: list[list[Measurement]] = []
    with EmbeddedMongod(oplog_size_mb=4000) as server, Client(server.uri) as client:
        console.print("warming up …")
        warm_up = warmed(client, server.uri, folder, options.warm_up, options.seed)
        if options.events:
            console.print(f"capture: {options.events:,} events …")
            pairs.append(capture.compare(client, server.uri, folder, events=options.events, seed=options.seed))
        if options.documents:
            console.print(f"snapshot: {options.documents:,} documents …")
            pairs.append(snapshot.compare(client, server.uri, folder, documents=options.documents, seed=options.seed))
    console.print(report.throughput_table("Warm-up, not counted below", [[one] for one in warm_up]))
    console.print(report.throughput_table("Each beside its limit, in one run", pairs))
    return {"warm_up": [asdict(one) for one in warm_up], "pairs": [[asdict(one) for one in pair] for pair in pairs]}


def extremes(options: argparse.Namespace, folder: Path, console: Console) -> dict[str, Any]:
    """Measure 10 MB documents, and a slow stream of single changes. Return the measurements."""
    record: dict[str, Any] = {}
    with EmbeddedMongod(oplog_size_mb=4000) as server, Client(server.uri) as client:
        if options.large:
            console.print(f"large: {options.large} documents of {LARGE / 1e6:.0f} MB …")
            start = now(client)
            insert_all(client, "large", large_documents(options.large, seed=options.seed), 2)
            found = [
                capture.capture(server.uri, "large", folder, start, options.large, engine=engine) for engine in ENGINES
            ]
            found += [
                snapshot.snapshot(server.uri, "large", folder, options.large, engine=engine) for engine in ENGINES
            ]
            console.print(report.throughput_table(f"Documents of {LARGE / 1e6:.0f} MB", [[one] for one in found]))
            record["large"] = [asdict(one) for one in found]
        if options.trickle:
            console.print(f"trickle: {options.trickle} s of {trickle.RATE} changes each …")
            trickled = trickle.compare(client, server.uri, folder, seconds=options.trickle)
            console.print(report.trickle_table(trickled))
            record["trickle"] = [
                {"engine": one.engine, "median": one.median, "most": one.within(0.99)} for one in trickled
            ]
    return record


def warmed(client: Client, uri: str, folder: Path, count: int, seed: int) -> list[Measurement]:
    """Warm up the JVM with one capture and one snapshot. Return both measurements."""
    start = now(client)
    insert(client, "warm", count, seed=seed)
    return [
        capture.capture(uri, "warm", folder, start, count, "first bronze capture"),
        snapshot.snapshot(uri, "warm", folder, count, "first bronze snapshot"),
    ]


if __name__ == "__main__":
    main()
