"""Plan of a snapshot: chunks of about equal size, without a scan of the collection."""

from __future__ import annotations

from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import errors as mongo

from strandline.model.snapshot_policy import ChunkSize
from strandline.source.client import NO_TIME_LIMIT, AnyClient, Collection, read_command, translate_errors
from strandline.source.errors import classify
from strandline.source.ranges import Range, is_valid_bound, ranges_between

_SAMPLES_PER_CHUNK = 20
_MAX_SAMPLE_SHARE = 1 / 20
"""Share of a collection's documents. For a larger sample the server scans the collection."""


def plan_chunks(client: AnyClient, collection: Collection, size: ChunkSize) -> list[Range]:
    """Return chunks of *collection* that cover all `_id`s.

    The bounds come from a random sample of `_id`s, and after its last bound from the `_id` index. If the server refuses
    to sample, as with ``notablescan``, all come from the index, which takes longer.
    I/O: reads a sample and index entries.

    Args:
        client: Opened with ``raw=True``.
        size: Target size of a chunk, in documents and bytes.
    """
    target = client[collection.db][collection.name]
    with translate_errors(f"sampling {collection}", phase="scanning"):
        count, documents = target.estimated_document_count(), size.documents
        if count * _MAX_SAMPLE_SHARE > _SAMPLES_PER_CHUNK:
            documents = min(documents, max(1, size.bytes // _mean_size(target)))
        chunks = -(-count // documents)
        if chunks <= 1:
            return [Range()]
        bounds = _sampled_bounds(target, chunks)
        return ranges_between(
            [*bounds, *(index_bounds_after(client, collection, bounds[-1], documents) if bounds else ())]
        )


def _sampled_bounds(target: Any, chunks: int) -> list[bytes]:
    """Return the bounds of *chunks* ranges from a sample; the smallest `_id` alone if the server refuses to sample."""
    sample = [{"$sample": {"size": chunks * _SAMPLES_PER_CHUNK}}, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    try:
        sampled = [bytes(document.raw) for document in target.aggregate(sample, allowDiskUse=True, **NO_TIME_LIMIT)]
    except mongo.OperationFailure as error:
        if classify(error) == "retriable":
            raise
        smallest = target.find({}, {"_id": 1}).hint([("_id", 1)]).limit(1)
        return [identifier for document in smallest if is_valid_bound(identifier := bytes(document.raw))]
    identifiers = [identifier for identifier in sampled if is_valid_bound(identifier)]
    return [identifiers[number * len(identifiers) // chunks] for number in range(1, chunks) if identifiers]


def _mean_size(target: Any) -> int:
    """Return the mean size of a small sample of documents, in bytes; at least 1."""
    sample = [{"$sample": {"size": _SAMPLES_PER_CHUNK}}, {"$project": {"_id": 0, "size": {"$bsonSize": "$$ROOT"}}}]
    sizes = [int(document["size"]) for document in target.aggregate(sample, **NO_TIME_LIMIT)]
    return max(1, sum(sizes) // max(1, len(sizes)))


def index_bounds_after(client: AnyClient, collection: Collection, bound: bytes, documents: int) -> list[bytes]:
    """Return bounds after *bound*, one per *documents* documents. The last range has at most twice as many.

    A random sample finds too few of the newest documents: the server picks every page of the `_id` tree with the same
    chance, and the newest documents are on few pages. In a collection of 1,000,000 documents with ascending `_id`s the
    last tenth of the sample stood for 430,000. I/O: reads the `_id` index.

    Args:
        client: Opened with ``raw=True``.
        bound: Document ``{_id: value}``.
        documents: Documents per range.
    """
    database, bounds = client[collection.db], [bound]
    find = {
        "find": collection.name,
        "hint": {"_id": 1},
        "sort": {"_id": 1},
        "projection": {"_id": 1},
        "skip": documents,
        "limit": 1,
    }
    while further := list(read_command(database, find | {"min": RawBSONDocument(bounds[-1])})):
        bounds.append(bytes(further[0].raw))
        # The same `_id` on several shards, or MaxKey in a clustered collection.
        if bounds[-1] == bounds[-2] or not is_valid_bound(bounds[-1]):
            break
    return bounds[1:-1]
