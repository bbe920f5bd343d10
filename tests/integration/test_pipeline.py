"""MongoDB → bronze → silver on a real server: the pipeline continues after restarts, losses and concurrent changes."""

from __future__ import annotations

import datetime
import random
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bson
import pytest
from lake_place import files_of
from lakehouse import (
    assert_equal_to_source,
    assert_streamed_exactly_once,
    bronze,
    land,
    restore,
    silver,
    spark_pipeline,
)
from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pyspark.sql import SparkSession
from stream_reading import needs_failpoints

from strandline.errors import ConfigurationError, ContractError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.operations.status import silver_status
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import bronze_table
from strandline.silver.progress_index import ProgressIndex

Db = Database[dict[str, Any]]


# scenario: A02, B01, B02, B12, D01, D06, D10, E14, O10, R06
@pytest.mark.check
def test_a_snapshot_and_a_change_are_captured_once_and_a_third_run_commits_no_row(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    database.orders.insert_many([{"_id": n, "total": n * 1.5, "lines": [{"sku": "a", "qty": n}]} for n in range(12)])
    land(ctx)
    assert_equal_to_source(ctx, database, "orders")
    assert bronze(ctx).where("op = 'r'").count() == 12

    database.orders.update_one({"_id": 3}, {"$set": {"total": 9.0, "shipped.at": datetime.datetime(2026, 1, 1)}})
    database.orders.update_one({"_id": 3}, {"$set": {"total": 9.5}})
    database.orders.replace_one({"_id": 4}, {"_id": 4, "fresh": True})
    database.orders.delete_many({"_id": {"$lt": 2}})
    database.orders.insert_one({"_id": 0, "again": 1})
    land(ctx)
    assert_equal_to_source(ctx, database, "orders")
    assert_streamed_exactly_once(ctx)
    ops = [
        row["op"] for row in bronze(ctx).where("batch is not null and op != 'heartbeat'").orderBy("position").collect()
    ]
    assert ops == ["u", "u", "u", "d", "d", "c"]
    updates = [
        bson.decode(bytes(row["envelope"]))
        for row in bronze(ctx).where("key = '3' and op = 'u'").orderBy("position").collect()
    ]
    assert [event["fullDocument"]["total"] for event in updates] == [9.5, 9.5], (
        "both were looked up after the second one"
    )
    assert [event["updateDescription"]["updatedFields"]["total"] for event in updates] == [9.0, 9.5]
    tombstones = silver(ctx, "orders").where("_deleted").select("_key", "_op", "total").collect()
    assert [tuple(row) for row in tombstones] == [("1", "d", 1.5)]

    versions = ctx.tables.version(silver_name(ctx))
    assert run_silver(ctx) == []
    land(ctx)
    assert ctx.tables.version(silver_name(ctx)) == versions
    progress_index = ProgressIndex.read(ctx.tables, bronze_table("test"))
    assert progress_index.complete_through <= ctx.tables.version(bronze_table("test")), (
        "heartbeats alone are not worth a commit"
    )
    assert show_offset(ctx).batch >= 3
    assert [(status.live, status.tombstones) for status in silver_status(ctx)] == [(11, 1)]


def silver_name(ctx: Any) -> Any:
    return silver_status(ctx)[0].table


# scenario: C01, C03, C04, C06, C08, A13, A18, R03
@pytest.mark.check
@pytest.mark.parametrize("chunk_size", [20, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_every_document_changes_while_the_snapshot_runs(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, chunk_size: int
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_chunk_size=chunk_size)
    database.a.insert_many([{"_id": n, "v": n} for n in range(40)])
    stop = threading.Event()

    def change_everything() -> None:
        generation = 0
        while not stop.is_set():
            generation += 1
            database.a.update_many({}, {"$inc": {"v": 2000}})
            database.a.delete_one({"_id": generation % 40})
            database.a.insert_one({"_id": 1000 + generation, "v": 2000})
            time.sleep(0.1)

    writer = threading.Thread(target=change_everything)
    writer.start()
    try:
        run_capture(ctx, once=True)
    finally:
        stop.set()
        writer.join()
    run_silver(ctx)  # what collided first, and by itself
    land(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert_streamed_exactly_once(ctx)
    assert bronze(ctx).where("operation_type = 'completed'").count() == 1


# scenario: A12, B12
def test_an_empty_collection_and_a_database_that_does_not_exist_yet(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    land(ctx)
    assert bronze(ctx).where("op in ('c', 'r')").count() == 0
    database.later.insert_one({"_id": 1})
    land(ctx)
    assert_equal_to_source(ctx, database, "later")
    assert bronze(ctx).where("op = 'r'").count() == 0, (
        "what is written after the start is streamed, not snapshotted again"
    )


# promise 1; scenario: E07, O11
@pytest.mark.long
def test_everything_but_the_tables_may_be_deleted(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": n} for n in range(5)])
    land(ctx)
    before = show_offset(ctx)
    shutil.rmtree(files_of(tmp_path) / "control")
    found = {path.name for path in files_of(tmp_path).iterdir()}
    assert found == {"bronze", "silver"}
    database.a.insert_one({"_id": 99})
    land(spark_pipeline(spark, mongo_uri, database.name, tmp_path))
    assert_equal_to_source(ctx, database, "a")
    assert_streamed_exactly_once(ctx)
    assert show_offset(ctx).batch > before.batch
    assert bronze(ctx).where("op = 'r'").count() == 5


@pytest.mark.long
def test_a_dropped_and_a_restored_silver_table_catch_up(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": n} for n in range(5)])
    database.b.insert_one({"_id": 1})
    land(ctx)
    old = ctx.tables.version(silver_name(ctx))
    database.a.update_many({}, {"$set": {"x": 1}})
    land(ctx)
    assert_equal_to_source(ctx, database, "a", "b")
    restore(ctx, silver_name(ctx), old)
    shutil.rmtree(files_of(tmp_path) / "silver" / "b")
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "b")


# scenario: T05, E13: Delta forgets a table's log after thirty days, and bronze is never older than that for its readers
@pytest.mark.long
def test_pipeline_goes_on_where_bronze_has_lost_its_older_log(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": n} for n in range(5)])
    land(ctx)
    table = bronze_table("test")
    ctx.tables.set_properties(table, {"delta.checkpointInterval": "1"})
    database.a.delete_one({"_id": 1})
    run_capture(ctx, once=True)
    kept = ctx.tables.version(table)
    for file in (files_of(tmp_path) / "bronze" / "test" / "_delta_log").glob("*.json"):
        if int(file.stem) < kept:
            file.unlink()
    run_silver(ctx)
    assert "its log was cleaned up since" in caplog.text
    assert_equal_to_source(ctx, database, "a")
    shutil.rmtree(files_of(tmp_path) / "silver")
    database.a.insert_one({"_id": 9})
    land(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert_streamed_exactly_once(ctx)


# scenario: O09
def test_bronze_with_rows_and_no_position_refuses_a_new_start(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    table = bronze_table("test")
    ctx.tables.set_properties(table, {"delta.appendOnly": "false"})
    ctx.tables.delete(table, "batch IS NOT NULL")
    with pytest.raises(ContractError, match="has rows, but none that ends a batch"):
        run_capture(ctx, once=True)


# scenario: O08, and the lake of another source; G12: a sharded cluster has one token for all shards, so none can be
# missing. What is left of G12: a replica set filled the lake, and a sharded cluster is to continue it.
def test_a_lake_of_another_deployment_is_refused(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    run_capture(ctx, once=True)
    ctx.tables.set_properties(bronze_table("test"), {"strandline.deployment": "another"})
    with pytest.raises(ConfigurationError, match="another MongoDB deployment"):
        run_capture(ctx, once=True)


# scenario: S08
@pytest.mark.long
def test_a_bronze_table_without_a_new_column_gets_it_and_goes_on(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx, older = (spark_pipeline(spark, mongo_uri, database.name, tmp_path / name) for name in ("new", "older"))
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    table = bronze_table("test")
    rows = bronze(ctx).drop("last_event")
    known = {
        key: value
        for key, value in ctx.tables.properties(table).items()
        if not key.startswith(("delta.min", "delta.feature"))
    }
    older.tables.create(table, rows.schema, properties=known, cluster_by=("collection", "position"))
    older.tables.append(table, rows)
    database.a.insert_one({"_id": 2})
    land(older)
    assert_equal_to_source(older, database, "a")
    assert set(bronze(older).columns) == set(bronze(ctx).columns)
    assert bronze(older).where("op = 'c'").select("key").collect() == [("2",)]
    assert show_offset(older).epoch == 1


# scenario: Q06
@pytest.mark.long
def test_four_silver_runs_at_once_end_as_one_does(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": number} for number in range(5)])
    land(ctx)
    database.a.update_many({}, {"$set": {"n": 1}})
    database.a.delete_one({"_id": 0})
    run_capture(ctx, once=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run_silver(ctx), range(4)))
    assert_equal_to_source(ctx, database, "a")
    assert run_silver(ctx) == []


# scenario: R05
@needs_failpoints
def test_an_answer_that_takes_long_is_not_taken_for_the_end(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[Any], database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 2})
    slow = {
        "failCommands": ["getMore", "aggregate"],
        "blockConnection": True,
        "blockTimeMS": 1500,
        "appName": "strandline",
    }
    mongo.admin.command("configureFailPoint", "failCommand", mode={"times": 4}, data=slow)
    try:
        assert run_capture(ctx, once=True).events == 1
    finally:
        mongo.admin.command("configureFailPoint", "failCommand", mode="off")


# scenario: I07
@pytest.mark.long
def test_every_prefix_of_bronze_is_a_prefix_of_what_was_appended(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[Any], database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path, max_batch_size=20)
    database.lists.insert_many([{"_id": key, "list": []} for key in range(4)])
    run_capture(ctx, once=True)

    def append(writer: int) -> None:
        chance = random.Random(writer)
        with mongo.start_session() as session:
            for number in range(30):
                keys = chance.sample(range(4), chance.choice([1, 2]))

                def push(within: ClientSession, keys: list[int] = keys, value: str = f"{writer}-{number}") -> None:
                    for key in keys:
                        database.lists.update_one({"_id": key}, {"$push": {"list": value}}, session=within)

                session.with_transaction(push)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(append, range(3)))
    land(ctx)
    seen: dict[int, list[str]] = {key: [] for key in range(4)}
    for row in bronze(ctx).where("op = 'u'").orderBy("position").collect():
        event = bson.decode(bytes(row["envelope"]))
        appended = seen[event["documentKey"]["_id"]]
        for path, value in event["updateDescription"]["updatedFields"].items():
            appended += value if path == "list" else [value]  # the first one may set the whole list
            assert path in ("list", f"list.{len(appended) - 1}")
    assert seen == {document["_id"]: document["list"] for document in database.lists.find()}
    assert_equal_to_source(ctx, database, "lists")
