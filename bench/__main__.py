"""``make bench``: the change stream's drain limit beside bronze capture, and the find limit beside the snapshot."""

from __future__ import annotations

import argparse
import itertools
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bson.timestamp import Timestamp
from pymongo import MongoClient
from rich.console import Console
from rich.table import Table

from bench.documents import documents
from bench.measure import Measurement, measured
from pipelines.jobs.capture import run_capture
from pipelines.jobs.context import open_context
from pipelines.model.raw_bson import split_stream
from pipelines.settings import Settings
from pipelines.source.mongod import EmbeddedMongod

Client = MongoClient[dict[str, Any]]


def insert(client: Client, database: str, count: int) -> None:
    for batch in itertools.batched(documents(count), 5000) if hasattr(itertools, "batched") else _batched(documents(count), 5000):
        client[database].docs.insert_many(list(batch), ordered=False)


def _batched(items: Any, size: int) -> Any:
    """`itertools.batched`, which Python 3.11 lacks."""
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch


def drain_limit(client: Client, database: str, start: Timestamp, count: int) -> tuple[int, int]:
    """Raw batches of the change stream, split and thrown away."""
    found = size = 0
    pipeline = [{"$changeStream": {"startAtOperationTime": start, "fullDocument": "updateLookup"}}]
    for batch in client[database].docs.aggregate_raw_batches(pipeline, batchSize=16_384):
        size += len(batch)
        found += sum(1 for _ in split_stream(batch))
        if found >= count:
            break
    return found, size


def find_limit(client: Client, database: str) -> tuple[int, int]:
    """Raw batches of one find over the collection, split and thrown away."""
    found = size = 0
    for batch in client[database].docs.find_raw_batches(batch_size=16_384):
        size += len(batch)
        found += sum(1 for _ in split_stream(batch))
    return found, size


def capture(uri: str, database: str, root: str, **options: Any) -> tuple[int, int]:
    """A whole capture run into an empty lake."""
    settings = Settings(
        source={"name": "bench", "uri": uri},  # type: ignore[arg-type]  # why: pydantic builds the section
        capture={"scope": "database", "target": database, **options},  # type: ignore[arg-type]  # why: as above
        lake={"root": root},  # type: ignore[arg-type]  # why: as above
    )
    result = run_capture(open_context(settings), once=True)
    return result.events + result.documents, sum(file.stat().st_size for file in Path(root).rglob("*.parquet"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--documents", type=int, default=1_000_000)
    options = parser.parse_args()
    with EmbeddedMongod(oplog_size_mb=4000) as server, tempfile.TemporaryDirectory() as folder, Client(server.uri) as client:
        capture(server.uri, "nothing", f"{folder}/session")  # starts the session
        insert(client, "warm", 60_000)
        capture(server.uri, "warm", f"{folder}/warm")  # compiles the JVM's hot code
        start = client.admin.command("ping")["operationTime"]
        insert(client, "events", options.events)
        begun = datetime.fromtimestamp(start.time, UTC).isoformat()
        stream = [
            measured("change stream, raw", lambda: drain_limit(client, "events", start, options.events)),
            measured("bronze capture", lambda: capture(server.uri, "events", f"{folder}/s", snapshot_mode="no_data", start_at=begun)),
        ]
        insert(client, "docs", options.documents)
        snapshot = [
            measured("find, raw", lambda: find_limit(client, "docs")),
            measured("bronze snapshot", lambda: capture(server.uri, "docs", f"{folder}/d")),
        ]
    show(stream, snapshot)


def show(*pairs: list[Measurement]) -> None:
    table = Table(title="each beside its limit, one run, steady state")
    for heading in ("", "documents", "seconds", "documents/s", "MB/s", "ratio", "peak Python MB", "peak JVM MB"):
        table.add_column(heading, justify="right")
    for pair in pairs:
        for one in pair:
            megabytes = [f"{size / 1e6:,.0f}" for size in (one.size / one.seconds, one.peak_python, one.peak_jvm)]
            ratio = f"{one.rate / pair[0].rate:.2f}"
            table.add_row(one.name, f"{one.documents:,}", f"{one.seconds:.1f}", f"{one.rate:,.0f}", megabytes[0], ratio, *megabytes[1:])
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
