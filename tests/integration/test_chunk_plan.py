"""Where a real collection is cut into chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import bson
import pytest
from pymongo.database import Database

from pipelines.model.snapshot_policy import ChunkSize
from pipelines.source.chunk_plan import bounds_beyond, plan_chunks
from pipelines.source.client import AnyClient, Collection, ConnectionOptions, find_collection, open_client, operation_time
from pipelines.source.ranges import Range, read_range, tile, tiles_completely

Db = Database[dict[str, Any]]


@pytest.fixture
def raw(mongo_uri: str) -> Iterator[AnyClient]:
    with closing(open_client(ConnectionOptions(mongo_uri), raw=True)) as client:
        yield client


def held(raw: AnyClient, collection: Collection, chunks: Sequence[Range]) -> list[int]:
    """How many documents each chunk has."""
    at = operation_time(raw)
    return [sum(len(some) for some in read_range(raw, collection, chunk, at)) for chunk in chunks]


def of(database: Db, name: str) -> Collection:
    found = find_collection(database, name)
    assert found is not None
    return found


# scenario: A20
def test_what_comes_after_the_last_bound_is_cut_as_the_index_counts_it(raw: AnyClient, database: Db) -> None:
    database.docs.insert_many([{"_id": number} for number in range(100)])
    docs, bound = of(database, "docs"), bson.encode({"_id": 10})
    assert [bson.decode(found)["_id"] for found in bounds_beyond(raw, docs, bound, 20)] == [30, 50, 70]
    assert held(raw, docs, tile([bound, *bounds_beyond(raw, docs, bound, 20)])) == [10, 20, 20, 20, 30]
    assert bounds_beyond(raw, docs, bound, 50) == []  # the last one has 90, less than twice as many


def test_max_key_bounds_nothing_where_it_is_the_last_document(raw: AnyClient, database: Db) -> None:
    database.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    for name in ("docs", "clustered"):
        database[name].insert_many([*({"_id": number} for number in range(10)), {"_id": bson.MaxKey()}])
        collection = of(database, name)
        bounds = bounds_beyond(raw, collection, bson.encode({"_id": 0}), 2)
        assert [bson.decode(found)["_id"] for found in bounds] == ([2, 4, 6] if name == "docs" else [2, 4, 6, 8])
        chunks = plan_chunks(raw, collection, ChunkSize(1))
        assert sum(held(raw, collection, chunks)) == 11


def test_no_last_chunk_is_more_than_twice_as_large_as_asked_for(raw: AnyClient, database: Db) -> None:
    database.docs.insert_many([{"_id": number} for number in range(300)])
    docs = of(database, "docs")
    for _ in range(30):  # the sample is random
        chunks = plan_chunks(raw, docs, ChunkSize(10))
        assert tiles_completely(chunks)
        assert held(raw, docs, chunks[-1:])[0] <= 20


def test_large_documents_make_chunks_of_fewer(raw: AnyClient, database: Db) -> None:
    database.large.insert_many([{"_id": number, "text": "x" * 10_000} for number in range(500)])
    large = of(database, "large")
    chunks = plan_chunks(raw, large, ChunkSize(1_000_000, 100 * 10_040))
    assert tiles_completely(chunks)
    assert 5 <= len(chunks) <= 7
    assert len(plan_chunks(raw, large, ChunkSize(1_000_000, 1000 * 10_040))) == 1
    assert len(plan_chunks(raw, large, ChunkSize(1_000_000))) == 1


def test_one_document_above_the_bytes_of_a_chunk_is_a_chunk(raw: AnyClient, database: Db) -> None:
    database.large.insert_many([{"_id": number, "text": "x" * 2_000} for number in range(450)])
    large = of(database, "large")
    chunks = plan_chunks(raw, large, ChunkSize(1_000_000, 1024))
    assert tiles_completely(chunks)
    assert sum(held(raw, large, chunks)) == 450
    assert len(chunks) > 100


def test_few_documents_are_not_asked_for_their_size(raw: AnyClient, database: Db) -> None:
    """A sample of more than a twentieth would read them all."""
    database.few.insert_many([{"_id": number, "text": "x" * 10_000} for number in range(300)])
    assert plan_chunks(raw, of(database, "few"), ChunkSize(1_000, 1024)) == [Range()]


def test_what_is_empty_or_gone_is_one_chunk(raw: AnyClient, database: Db) -> None:
    assert plan_chunks(raw, Collection(database.name, "nothing", None), ChunkSize(1)) == [Range()]
