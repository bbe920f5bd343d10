"""Several shards behind one mongos, as far as a stand-in can show them (`sharded_cluster`)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import MaxKey
from lakehouse import settings_for
from sharded_cluster import ShardedCluster, sharded_cluster

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table
from strandline.silver.decode.document import document_in


@pytest.fixture(scope="module")
def cluster() -> Iterator[ShardedCluster]:
    with sharded_cluster() as running:
        yield running


@pytest.fixture
def database(cluster: ShardedCluster) -> Iterator[str]:
    name = f"t_{uuid.uuid4().hex[:12]}"
    yield name
    cluster.key = ()
    for shard in cluster.shards:
        shard.client.drop_database(name)


def native(cluster: ShardedCluster, database: str, root: Path, **capture: Any) -> DeltaRsContext:
    ctx = open_capture_without_spark(settings_for(cluster.uri, database, root, **capture))
    assert ctx is not None
    return ctx


def rows(ctx: DeltaRsContext) -> list[dict[str, Any]]:
    query = Query(bronze_table("test")).select("position", "batch", "op", "key", "envelope")
    found = ctx.tables.query(query.where(("op", "in", ("r", "c", "u", "d"))))
    return sorted(found, key=lambda row: row["position"])


def newest(ctx: DeltaRsContext) -> dict[str, Any]:
    """The newest document of each key, by position; keys whose newest change is a delete are left out."""
    last = {row["key"]: document_in(row["op"], row["envelope"]) for row in rows(ctx)}
    return {key: bson.decode(document) for key, document in last.items() if document is not None}


def test_events_of_shards_whose_clocks_differ_come_once_and_in_one_order(
    cluster: ShardedCluster, database: str, tmp_path: Path
) -> None:
    cluster.create(database, "a")
    ctx = native(cluster, database, tmp_path, max_batch_size=7)
    cluster.collection(0, database, "a").insert_one({"_id": 0})
    cluster.collection(1, database, "a").insert_one({"_id": 1})
    assert run_capture(ctx, once=True).documents == 2
    for turn in range(3):  # each run continues at a token that one shard alone knows
        cluster.set_clock_ahead(turn % 2, 3)
        for number in range(10):
            cluster.collection(number % 2, database, "a").insert_one({"_id": 100 * (turn + 1) + number})
        assert run_capture(ctx, once=True).events == 10
    assert run_capture(ctx, once=True).events == 0
    # the stream begins at the time that the mongos knew, so it may repeat what the snapshot read
    streamed = [row for row in rows(ctx) if row["op"] == "c" and int(row["key"]) >= 100]
    assert sorted(int(row["key"]) for row in streamed) == [
        100 * turn + number for turn in (1, 2, 3) for number in range(10)
    ]
    assert len({row["position"] for row in streamed}) == 30
    assert [row["batch"] for row in streamed] == sorted(row["batch"] for row in streamed), (
        "batches follow the positions"
    )


def test_a_document_that_moves_is_neither_lost_nor_older_than_before(
    cluster: ShardedCluster, database: str, tmp_path: Path
) -> None:
    cluster.create(database, "a")
    first, second = (cluster.collection(number, database, "a") for number in (0, 1))
    first.insert_many([{"_id": number, "n": 0} for number in range(20)])
    ctx = native(cluster, database, tmp_path, snapshot_chunk_size=5)
    assert run_capture(ctx, once=True).documents == 20
    cluster.set_clock_ahead(0, 3)  # only the mongos tells the other shard, with the move
    first.update_one({"_id": 3}, {"$set": {"n": 1}})
    cluster.move(database, "a", 3, target=1)
    second.update_one({"_id": 3}, {"$set": {"n": 2}})
    cluster.move(database, "a", 4, target=1)
    assert run_capture(ctx, once=True).events == 2, "a move makes no event"
    assert newest(ctx)["3"] == {"_id": 3, "n": 2}
    assert len(newest(ctx)) == 20
    again = native(cluster, database, tmp_path / "again", snapshot_chunk_size=5)
    assert run_capture(again, once=True).documents == 20
    assert newest(again) == newest(ctx)


def test_one_id_on_two_shards_is_refused_unless_declared_unique(
    cluster: ShardedCluster, database: str, tmp_path: Path
) -> None:
    cluster.create(database, "a")
    cluster.key = ("region",)
    ctx = native(cluster, database, tmp_path)
    run_capture(ctx, once=True)
    cluster.set_clock_ahead(1, 3)  # tokens of the stand-in differ by time only: they hold no shard key
    for number, region in enumerate(("eu", "us")):  # the collection was sharded when capture had begun
        cluster.collection(number, database, "a").insert_one({"_id": 1, "region": region})
    with pytest.raises(ConfigurationError, match=rf"an _id of {database}\.a may exist on several shards") as refused:
        run_capture(ctx, once=True)
    assert "capture.sharded_ids_are_unique" in refused.value.next_step
    assert rows(ctx) == []
    told = native(cluster, database, tmp_path, sharded_ids_are_unique=True)
    assert run_capture(told, once=True).events == 2
    assert [bson.decode(row["envelope"])["fullDocument"]["region"] for row in rows(told)] == ["eu", "us"]
    assert len({row["position"] for row in rows(told)}) == 2
    fresh = native(cluster, database, tmp_path / "fresh", sharded_ids_are_unique=True)
    assert run_capture(fresh, once=True).documents == 2


def test_a_chunk_that_comes_in_no_order_is_read_once(cluster: ShardedCluster, database: str, tmp_path: Path) -> None:
    cluster.create(database, "a")
    identifiers = [MaxKey(), *range(200)]
    for number, identifier in enumerate(identifiers):
        cluster.collection(number % 2, database, "a").insert_one({"_id": identifier})
    ctx = native(cluster, database, tmp_path, snapshot_chunk_size=50)
    assert run_capture(ctx, once=True).documents == 201
    assert len({row["key"] for row in rows(ctx)}) == 201


def test_a_scheduled_read_has_the_documents_of_all_shards(
    cluster: ShardedCluster, database: str, tmp_path: Path
) -> None:
    cluster.create(database, "a")
    first, second = (cluster.collection(number, database, "a") for number in (0, 1))
    first.insert_many([{"_id": number, "n": 0} for number in range(5)])
    second.insert_many([{"_id": number, "n": 0} for number in range(5, 10)])
    scheduled = {f"{database}.a": {"every": "1s"}}
    ctx = native(cluster, database, tmp_path, scheduled=scheduled, collection_exclude_list=rf"{database}\.a")
    assert run_capture(ctx, once=True).documents == 10
    second.delete_one({"_id": 7})
    first.update_one({"_id": 1}, {"$set": {"n": 1}})
    assert run_capture(ctx, once=True, now_us=lambda: time.time_ns() // 1000 + 10_000_000).documents == 2
    assert {key: document["n"] for key, document in newest(ctx).items()} == {
        str(number): int(number == 1) for number in range(10) if number != 7
    }
