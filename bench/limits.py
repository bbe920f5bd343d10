"""Read limits of the driver on this server: raw batches, split into documents and discarded without decoding."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from bson.timestamp import Timestamp
from pymongo import MongoClient

from bench.documents import documents
from strandline.model.bson.raw import int32_at

Client = MongoClient[dict[str, Any]]
COLLECTION = "docs"
_BATCH = 16_384
_INSERT = 5_000


def now(client: Client) -> Timestamp:
    """Return the current operation time of the server."""
    found: Timestamp = client.admin.command("ping")["operationTime"]
    return found


def insert(client: Client, database: str, count: int, *, seed: int) -> None:
    """Insert *count* generated documents."""
    insert_all(client, database, documents(count, seed=seed), _INSERT)


def insert_all(client: Client, database: str, remaining: Iterator[dict[str, Any]], batch_size: int) -> None:
    """Insert all documents of *remaining*, *batch_size* per request."""
    while batch := list(islice(remaining, batch_size)):
        client[database][COLLECTION].insert_many(batch, ordered=False)


def drain_limit(client: Client, database: str, start: Timestamp, count: int) -> tuple[int, int]:
    """Read the change stream of one collection from *start* until *count* events. Return events and bytes."""
    found = size = 0
    pipeline = [{"$changeStream": {"startAtOperationTime": start, "fullDocument": "updateLookup"}}]
    batches = cast(
        "Iterator[bytes]", client[database][COLLECTION].aggregate_raw_batches(pipeline, batchSize=_BATCH)
    )  # mistyped upstream
    for batch in batches:
        size += len(batch)
        found += _documents_in(batch)
        if found >= count:
            break
    return found, size


def find_limit(client: Client, database: str) -> tuple[int, int]:
    """Scan the collection with one cursor. Return documents and bytes."""
    found = size = 0
    batches = cast(
        "Iterator[bytes]", client[database][COLLECTION].find_raw_batches(batch_size=_BATCH)
    )  # mistyped upstream
    for batch in batches:
        size += len(batch)
        found += _documents_in(batch)
    return found, size


def _documents_in(batch: bytes) -> int:
    """Return the number of documents that are stored one after the other."""
    count = at = 0
    while at < len(batch):
        at += int32_at(batch, at)
        count += 1
    return count
