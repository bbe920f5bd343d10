"""``make bench``: what Strandline lands, beside the limit of the same server in the same run."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import capture, snapshot
from bench.landing import Landing
from bench.limits import Client, insert, now
from bench.measure import Measurement
from pipelines.source.mongod import EmbeddedMongod

_HEADINGS = ("", "documents", "seconds", "documents/s", "MB/s", "of limit", "steady/s", "of limit", "stored MB", "Python MB", "JVM MB")


def main() -> None:
    options = arguments()
    console = Console(width=150, stderr=options.json)
    with EmbeddedMongod(oplog_size_mb=4000) as server, tempfile.TemporaryDirectory() as name, Client(server.uri) as client:
        folder = Path(name)
        warm_up = warmed(client, server.uri, folder, options.warm_up, options.seed, console)
        pairs: list[list[Measurement]] = []
        if options.events:
            console.print(f"capture: {options.events:,} events …")
            pairs.append(capture.compare(client, server.uri, folder, events=options.events, seed=options.seed))
        if options.documents:
            console.print(f"snapshot: {options.documents:,} documents …")
            pairs.append(snapshot.compare(client, server.uri, folder, documents=options.documents, seed=options.seed))
    if options.json:
        record = {"warm_up": [asdict(one) for one in warm_up], "pairs": [[asdict(one) for one in pair] for pair in pairs]}
        Console().print_json(json.dumps(record))
    else:
        console.print(table("Warm-up, not counted below", [[one] for one in warm_up]))
        console.print(table("Each beside its limit, in one run", pairs))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--events", type=int, default=400_000, help="backlog of the capture; 0 leaves it out")
    parser.add_argument("--documents", type=int, default=1_000_000, help="size of the snapshot; 0 leaves it out")
    parser.add_argument("--warm-up", type=int, default=100_000, help="documents of each run before anything counts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="for machines, on standard output")
    return parser.parse_args()


def warmed(client: Client, uri: str, folder: Path, count: int, seed: int, console: Console) -> list[Measurement]:
    """I/O: starts the session and lets the JVM compile what both ways use; how long that took."""
    console.print("starting Spark …")
    started = time.perf_counter()
    Landing(uri, "nothing", folder / "session").context().spark.range(1).collect()
    console.print(f"session: {time.perf_counter() - started:.1f} s; warming up …")
    start = now(client)
    insert(client, "warm", count, seed=seed)
    return [
        capture.capture(uri, "warm", folder, start, count, "first bronze capture"),
        snapshot.snapshot(uri, "warm", folder, count, "first bronze snapshot"),
    ]


def table(title: str, pairs: list[list[Measurement]]) -> Table:
    """One row a measurement; ratios are to the first of each pair."""
    result = Table(title=title)
    for heading in _HEADINGS:
        result.add_column(heading, justify="right")
    for pair in pairs:
        for one in pair:
            result.add_row(*cells(one, pair[0]))
        result.add_section()
    return result


def cells(one: Measurement, limit: Measurement) -> list[str]:
    against = one is not limit
    return [
        one.name,
        f"{one.documents:,}",
        f"{one.seconds:.1f}",
        f"{one.rate:,.0f}",
        f"{one.size / one.seconds / 1e6:,.0f}",
        f"{one.rate / limit.rate:.2f}" if against else "",
        f"{one.steady:,.0f}" if one.steady else "",
        f"{one.steady / limit.rate:.2f}" if one.steady and against else "",
        f"{one.stored / 1e6:,.0f}" if one.stored else "",
        f"{one.peak.python / 1e6:,.0f}" if one.peak else "",
        f"{one.peak.jvm / 1e6:,.0f}" if one.peak else "",
    ]


if __name__ == "__main__":
    main()
