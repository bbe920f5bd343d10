"""Where a collection is cut into the chunks of a snapshot: about equal ones, with no scan of its documents."""

from __future__ import annotations

from typing import Any

from bson.raw_bson import RawBSONDocument

from pipelines.model.snapshot_policy import ChunkSize
from pipelines.source.client import AnyClient, Collection, read_command, translate_errors
from pipelines.source.ranges import Range, can_bound, tile

_SAMPLES_A_CHUNK = 20
_SCANNED_FROM = 1 / 20
"""Of its documents: for a sample of more than that the server scans a collection."""


def plan_chunks(client: AnyClient, collection: Collection, size: ChunkSize) -> list[Range]:
    """I/O: bounds from a random sample of `_id`s; beyond the last of them, from the index.

    Args:
        client: Opened with ``raw=True``.
    """
    target = client[collection.db][collection.name]
    with translate_errors(f"sampling {collection}"):
        count, documents = target.estimated_document_count(), size.documents
        if count * _SCANNED_FROM > _SAMPLES_A_CHUNK:
            documents = min(documents, max(1, size.bytes // _mean_size(target)))
        chunks = -(-count // documents)
        if chunks <= 1:
            return [Range()]
        sample = [{"$sample": {"size": chunks * _SAMPLES_A_CHUNK}}, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
        sampled = (bytes(document.raw) for document in target.aggregate(sample, allowDiskUse=True))
        identifiers = [identifier for identifier in sampled if can_bound(identifier)]
        bounds = [identifiers[number * len(identifiers) // chunks] for number in range(1, chunks) if identifiers]
        return tile([*bounds, *(bounds_beyond(client, collection, bounds[-1], documents) if bounds else ())])


def _mean_size(target: Any) -> int:
    """Bytes of a document, from a few of them; at least 1."""
    sample = [{"$sample": {"size": _SAMPLES_A_CHUNK}}, {"$project": {"_id": 0, "size": {"$bsonSize": "$$ROOT"}}}]
    sizes = [int(document["size"]) for document in target.aggregate(sample)]
    return max(1, sum(sizes) // max(1, len(sizes)))


def bounds_beyond(client: AnyClient, collection: Collection, bound: bytes, documents: int) -> list[bytes]:
    """I/O: bounds that cut what comes from *bound* (``{_id: value}``) on every *documents* documents, so that the last piece has at most
    twice as many.

    A random cursor finds too few of the documents that were inserted last: it goes down the server's tree with the same chance for every
    page, and those hang on few. Of a million whose `_id`s rise, the last tenth of the sample stood for 430,000.

    Args:
        client: Opened with ``raw=True``.
    """
    database, found = client[collection.db], [bound]
    find = {
        "find": collection.name,
        "hint": {"_id": 1},
        "sort": {"_id": 1},
        "projection": {"_id": 1},
        "skip": documents,
        "limit": 1,
    }
    while further := list(read_command(database, find | {"min": RawBSONDocument(found[-1])})):
        found.append(bytes(further[0].raw))
        if found[-1] == found[-2] or not can_bound(
            found[-1]
        ):  # one `_id` on several shards; MaxKey, in a clustered collection
            break
    return found[1:-1]
