"""Snapshot chunks of real collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bson
from pymongo.database import Database

from strandline.model.snapshot_policy import ChunkSize
from strandline.source.chunk_plan import index_bounds_after, plan_chunks
from strandline.source.client import AnyClient, Collection, find_collection, operation_time
from strandline.source.ranges import Range, covers_all_ids, ranges_between, read_range

Db = Database[dict[str, Any]]


def held(raw_client: AnyClient, collection: Collection, chunks: Sequence[Range]) -> list[int]:
    """Return the number of documents in each chunk."""
    at = operation_time(raw_client)
    return [sum(len(some) for some in read_range(raw_client, collection, chunk, at)) for chunk in chunks]


def of(database: Db, name: str) -> Collection:
    found = find_collection(database, name)
    assert found is not None
    return found


# scenario: A20
def test_documents_after_the_last_bound_are_cut_by_index_count(raw_client: AnyClient, database: Db) -> None:
    database.docs.insert_many([{"_id": number} for number in range(100)])
    docs, bound = of(database, "docs"), bson.encode({"_id": 10})
    assert [bson.decode(found)["_id"] for found in index_bounds_after(raw_client, docs, bound, 20)] == [30, 50, 70]
    assert held(raw_client, docs, ranges_between([bound, *index_bounds_after(raw_client, docs, bound, 20)])) == [
        10,
        20,
        20,
        20,
        30,
    ]
    assert index_bounds_after(raw_client, docs, bound, 50) == []  # the last one has 90, less than twice as many


def test_a_last_document_with_max_key_is_in_the_last_chunk(raw_client: AnyClient, database: Db) -> None:
    database.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    for name in ("docs", "clustered"):
        database[name].insert_many([*({"_id": number} for number in range(10)), {"_id": bson.MaxKey()}])
        collection = of(database, name)
        bounds = index_bounds_after(raw_client, collection, bson.encode({"_id": 0}), 2)
        assert [bson.decode(found)["_id"] for found in bounds] == ([2, 4, 6] if name == "docs" else [2, 4, 6, 8])
        chunks = plan_chunks(raw_client, collection, ChunkSize(1))
        assert sum(held(raw_client, collection, chunks)) == 11


def test_no_last_chunk_is_more_than_twice_as_large_as_asked_for(raw_client: AnyClient, database: Db) -> None:
    database.docs.insert_many([{"_id": number} for number in range(300)])
    docs = of(database, "docs")
    for _ in range(30):  # the sample is random
        chunks = plan_chunks(raw_client, docs, ChunkSize(10))
        assert covers_all_ids(chunks)
        assert held(raw_client, docs, chunks[-1:])[0] <= 20


def test_large_documents_make_chunks_of_fewer(raw_client: AnyClient, database: Db) -> None:
    database.large.insert_many([{"_id": number, "text": "x" * 10_000} for number in range(500)])
    large = of(database, "large")
    chunks = plan_chunks(raw_client, large, ChunkSize(1_000_000, 100 * 10_040))
    assert covers_all_ids(chunks)
    assert 5 <= len(chunks) <= 7
    assert len(plan_chunks(raw_client, large, ChunkSize(1_000_000, 1000 * 10_040))) == 1
    assert len(plan_chunks(raw_client, large, ChunkSize(1_000_000))) == 1


def test_one_document_above_the_bytes_of_a_chunk_is_a_chunk(raw_client: AnyClient, database: Db) -> None:
    database.large.insert_many([{"_id": number, "text": "x" * 2_000} for number in range(450)])
    large = of(database, "large")
    chunks = plan_chunks(raw_client, large, ChunkSize(1_000_000, 1024))
    assert covers_all_ids(chunks)
    assert sum(held(raw_client, large, chunks)) == 450
    assert len(chunks) > 100


def test_few_documents_are_not_asked_for_their_size(raw_client: AnyClient, database: Db) -> None:
    """The server scans the collection for a sample of more than a twentieth."""
    database.few.insert_many([{"_id": number, "text": "x" * 10_000} for number in range(300)])
    assert plan_chunks(raw_client, of(database, "few"), ChunkSize(1_000, 1024)) == [Range()]


def test_an_empty_or_missing_collection_is_one_chunk(raw_client: AnyClient, database: Db) -> None:
    assert plan_chunks(raw_client, Collection(database.name, "nothing", None), ChunkSize(1)) == [Range()]
