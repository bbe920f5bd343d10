"""What the driver can take from this server at most: raw batches, split into documents and thrown away, nothing decoded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from bson.timestamp import Timestamp
from pymongo import MongoClient

from bench.documents import documents
from pipelines.model.bson.raw import split_stream

Client = MongoClient[dict[str, Any]]
COLLECTION = "docs"
_BATCH = 16_384
_INSERT = 5_000


def now(client: Client) -> Timestamp:
    """The operation time of the server."""
    found: Timestamp = client.admin.command("ping")["operationTime"]
    return found


def insert(client: Client, database: str, count: int, *, seed: int) -> None:
    """I/O: fills a collection."""
    insert_all(client, database, documents(count, seed=seed), _INSERT)


def insert_all(client: Client, database: str, remaining: Iterator[dict[str, Any]], at_once: int) -> None:
    """I/O: fills a collection."""
    while batch := list(islice(remaining, at_once)):
        client[database][COLLECTION].insert_many(batch, ordered=False)


def drain_limit(client: Client, database: str, start: Timestamp, count: int) -> tuple[int, int]:
    """I/O: the change stream of one collection from *start*, until *count* events have come. Returns events and bytes."""
    found = size = 0
    pipeline = [{"$changeStream": {"startAtOperationTime": start, "fullDocument": "updateLookup"}}]
    batches = cast(
        "Iterator[bytes]", client[database][COLLECTION].aggregate_raw_batches(pipeline, batchSize=_BATCH)
    )  # mistyped upstream
    for batch in batches:
        size += len(batch)
        found += sum(1 for _ in split_stream(batch))
        if found >= count:
            break
    return found, size


def find_limit(client: Client, database: str) -> tuple[int, int]:
    """I/O: one scan of the collection by one cursor. Returns documents and bytes."""
    found = size = 0
    batches = cast(
        "Iterator[bytes]", client[database][COLLECTION].find_raw_batches(batch_size=_BATCH)
    )  # mistyped upstream
    for batch in batches:
        size += len(batch)
        found += sum(1 for _ in split_stream(batch))
    return found, size
