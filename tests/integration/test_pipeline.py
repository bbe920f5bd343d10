"""MongoDB → bronze → silver on a real server."""

from __future__ import annotations

import datetime
import json
import random
import shutil
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bson
import pytest
from lakehouse import (
    assert_equal_to_source,
    assert_streamed_exactly_once,
    bronze,
    documents_in_silver,
    documents_in_source,
    pipeline,
    restore,
    silver,
    with_silver,
)
from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.errors import ConfigurationError, ContractError
from pipelines.jobs.capture import run_capture
from pipelines.jobs.silver import run_silver
from pipelines.jobs.status import schema_history, show_offset, silver_columns, silver_status
from pipelines.model.columns import bronze_table
from pipelines.model.tables import TableName, safe_name
from pipelines.silver.ledger import Ledger
from pipelines.source.mongod import configured_uri

Db = Database[dict[str, Any]]


def land(ctx: Any) -> None:
    run_capture(ctx, once=True)
    run_silver(ctx)


# scenario: A02, B01, B02, B12, D01, D06, D10, E14, O10, R06
def test_snapshot_then_stream_then_nothing(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
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
    ops = [row["op"] for row in bronze(ctx).where("batch is not null and op != 'heartbeat'").orderBy("position").collect()]
    assert ops == ["u", "u", "u", "d", "d", "c"]
    updates = [bson.decode(bytes(row["envelope"])) for row in bronze(ctx).where("key = '3' and op = 'u'").orderBy("position").collect()]
    assert [event["fullDocument"]["total"] for event in updates] == [9.5, 9.5], "both were looked up after the second one"
    assert [event["updateDescription"]["updatedFields"]["total"] for event in updates] == [9.0, 9.5]
    tombstones = silver(ctx, "orders").where("_deleted").select("_key", "_op", "total").collect()
    assert [tuple(row) for row in tombstones] == [("1", "d", 1.5)]

    versions = ctx.tables.version(silver_name(ctx))
    assert run_silver(ctx) == []
    land(ctx)
    assert ctx.tables.version(silver_name(ctx)) == versions
    ledger = Ledger.read(ctx.tables, ctx.tables.id(bronze_table("test")))
    assert ledger.complete_through == ctx.tables.version(bronze_table("test")), "heartbeats move silver on"
    assert show_offset(ctx).batch >= 3
    assert [(status.live, status.tombstones) for status in silver_status(ctx)] == [(11, 1)]


def silver_name(ctx: Any) -> Any:
    return silver_status(ctx)[0].table


# scenario: C01, C03, C04, C06, C08, A13, A18, R03
@pytest.mark.parametrize("chunk_size", [20, 1_000_000])
def test_every_document_changes_while_the_snapshot_runs(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, chunk_size: int
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_chunk_size=chunk_size)
    database.a.insert_many([{"_id": n, "v": n} for n in range(40)])
    stop = threading.Event()

    def change_everything() -> None:
        generation = 0
        while not stop.is_set():
            generation += 1
            database.a.update_many({}, {"$inc": {"v": 2000}})
            database.a.delete_one({"_id": generation % 40})
            database.a.insert_one({"_id": 1000 + generation, "v": 2000})
            time.sleep(0.02)

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


# scenario: A09, A10, A11, A20, L03, L04, B13
def test_every_id_type_is_read_in_ranges_and_stays_one_row(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ids: list[Any] = [
        *(bson.ObjectId() for _ in range(20)),
        *range(20),
        *(f"text {n}" for n in range(20)),
        *(bson.Int64(5_000_000_000 + n) for n in range(10)),
        *(n + 0.5 for n in range(10)),
        *(bson.Decimal128(f"7E9{n}") for n in range(10)),
        *(uuid.UUID(int=n) for n in range(10)),
        *(datetime.datetime(2020, 1, 1 + n) for n in range(10)),
        *({"a": n, "b": "x"} for n in range(10)),
        *(bson.Binary(bytes([n]), 5) for n in range(5)),
        True,
        None,
        bson.MinKey(),
        bson.MaxKey(),
        bson.Timestamp(5, 1),
    ]
    database.mixed.insert_many([{"_id": value, "n": number} for number, value in enumerate(ids)])
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_chunk_size=9)
    land(ctx)
    assert bronze(ctx).where("op = 'snapshot' and operation_type = 'chunk'").count() > 5
    assert_equal_to_source(ctx, database, "mixed")

    database.mixed.replace_one({"_id": 1}, {"_id": 1.0, "other": "type"})  # scenario: L10
    database.mixed.update_many({}, {"$set": {"touched": True}})
    land(ctx)
    assert_equal_to_source(ctx, database, "mixed")
    assert silver(ctx, "mixed").count() == len(ids)


# scenario: A12, B12
def test_an_empty_collection_and_a_database_that_does_not_exist_yet(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    land(ctx)
    assert bronze(ctx).where("op in ('c', 'r')").count() == 0
    database.later.insert_one({"_id": 1})
    land(ctx)
    assert_equal_to_source(ctx, database, "later")
    assert bronze(ctx).where("op = 'r'").count() == 0, "what is written after the start is streamed, not snapshotted again"


# promise 1; scenario: E07, O11
def test_everything_but_the_tables_may_be_deleted(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": n} for n in range(5)])
    land(ctx)
    before = show_offset(ctx)
    shutil.rmtree(tmp_path / "control")
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"bronze", "silver"}
    database.a.insert_one({"_id": 99})
    land(pipeline(spark, mongo_uri, database.name, tmp_path))
    assert_equal_to_source(ctx, database, "a")
    assert_streamed_exactly_once(ctx)
    assert show_offset(ctx).batch > before.batch
    assert bronze(ctx).where("op = 'r'").count() == 5


def test_a_dropped_and_a_restored_silver_table_catch_up(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": n} for n in range(5)])
    database.b.insert_one({"_id": 1})
    land(ctx)
    old = ctx.tables.version(silver_name(ctx))
    database.a.update_many({}, {"$set": {"x": 1}})
    land(ctx)
    assert_equal_to_source(ctx, database, "a", "b")
    restore(ctx, silver_name(ctx), old)
    shutil.rmtree(tmp_path / "silver" / "b")
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "b")


# scenario: T05, E13: Delta forgets a table's log after thirty days, and bronze is never older than that for its readers
def test_pipeline_goes_on_where_bronze_has_lost_its_older_log(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": n} for n in range(5)])
    land(ctx)
    table = bronze_table("test")
    ctx.tables.set_properties(table, {"delta.checkpointInterval": "1"})
    database.a.delete_one({"_id": 1})
    run_capture(ctx, once=True)
    kept = ctx.tables.version(table)
    for file in (tmp_path / "bronze" / "test" / "_delta_log").glob("*.json"):
        if int(file.stem) < kept:
            file.unlink()
    run_silver(ctx)
    assert "; all of its rows are read instead" in caplog.text
    assert_equal_to_source(ctx, database, "a")
    shutil.rmtree(tmp_path / "silver")
    database.a.insert_one({"_id": 9})
    land(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert_streamed_exactly_once(ctx)


# scenario: L06, L09, L12, L13, L14, L15, K05, K09, M18, M19, U12
def test_legal_but_awkward_documents_survive(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(90):
        deep = {"d": deep}
    documents: list[dict[str, Any]] = [
        {"_id": 1, "date": bson.DatetimeMS(2**62), "dec": bson.Decimal128("NaN"), "": "empty", "a.b": 1, "$x": 1},
        {"_id": 2, "date": datetime.datetime(1, 1, 1), "A": 1, "a": 2, "like": {"$oid": "0" * 24}, "re": bson.Regex("a", "imx")},
        {"_id": 3, "deep": deep, "big": bson.Int64(2**63 - 1), "nul": "a\0b", "ts": bson.Timestamp(1, 2), "_key": "mine", "_position": 0},
        {
            "_id": 4,
            "min": bson.MinKey(),
            "max": bson.MaxKey(),
            "code": bson.Code("f()", {"x": 1}),
            "sub6": bson.Binary(b"q", 6),
            "ref": bson.DBRef("c", 1),
        },
        {"_id": 5, "date": "text now", "big": 1, "new\nline": 1, "quo`te'\"": 1, "emoji 🛫": [[], {}, None]},
    ]
    database.odd.insert_many(documents)
    broken = bson.encode({"_id": 6, "t": "XXXX"}).replace(b"XXXX", b"\xff\xfe\xfd\xfc")
    database.odd.insert_one(bson.raw_bson.RawBSONDocument(broken))
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    land(ctx)
    assert_equal_to_source(ctx, database, "odd")
    database.odd.update_many({}, {"$set": {"touched": 1}})  # and once more through the change stream
    database.odd.insert_one(bson.raw_bson.RawBSONDocument(broken.replace(b"\x06\0\0\0\x02", b"\x07\0\0\0\x02")))
    land(ctx)
    assert_equal_to_source(ctx, database, "odd")
    rescued = silver(ctx, "odd").select("_key", F.col("_rescued").cast("string").alias("r")).where("r is not null").collect()
    texts = {row["_key"]: row["r"] for row in rescued}
    assert '"_key"' in texts["3"]
    assert "$bson" in texts["6"]
    assert "$bson" in texts["7"]

    database.back.insert_many([bson.raw_bson.RawBSONDocument(raw) for raw in documents_in_silver(ctx, "odd").values()])
    assert documents_in_source(database, "back") == documents_in_source(database, "odd"), "from the lake back into MongoDB"


# scenario: S01, S03, T03
def test_columns_are_as_declared_or_the_document_is_one_variant(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    declaring = with_silver(ctx, columns={f"{database.name}.a": {"total": "decimal(2)", "lines": [{"sku": "string"}], "later": "date"}})
    whole = with_silver(ctx, schema_mode="variant", naming="database_collection")
    database.a.insert_many([{"_id": 1, "total": bson.Decimal128("1.5")}, {"_id": "x", "total": "free", "lines": [{"sku": "s", "n": 1}]}])
    run_capture(ctx, once=True)
    run_silver(declaring)
    run_silver(whole)
    database.a.update_one({"_id": 1}, {"$set": {"total": 7, "more": {"a": 1.5}, "document": "its own"}})
    run_capture(ctx, once=True)
    run_silver(declaring)
    run_silver(whole)
    assert_equal_to_source(ctx, database, "a")

    table = silver(ctx, "a")
    types = dict(table.dtypes)
    assert (types["total"], types["lines"], types["later"]) == ("decimal(38,2)", "array<struct<sku:string>>", "timestamp")
    rows = {row["_key"]: row for row in table.select("_key", "total", "lines.sku", F.col("_rescued").cast("string").alias("r")).collect()}
    assert (rows["1"]["total"], rows["1"]["r"]) == (7, None)
    assert (rows['"x"']["total"], rows['"x"']["sku"]) == (None, ["s"])
    assert json.loads(rows['"x"']["r"]) == {
        "total": {"type": "string", "value": "free"},
        "lines.0.n": {"type": "int", "value": {"$numberInt": "1"}},
    }

    assert [(column.column, column.type) for column in silver_columns(ctx) if column.table.name == "a"][1:4] == [
        ("total", "decimal(38,2)"),
        ("lines", "array<struct<sku:string>>"),
        ("later", "timestamp"),
    ]
    changes = [(row["path"], row["before"], row["after"]) for row in schema_history(ctx, "silver.a", limit=9)]
    assert changes[0][0] == "document", "an undeclared field came last"
    assert ("total", "", "DECIMAL(38,2)") in changes
    assert len(schema_history(ctx, limit=3)) == 3

    documents = ctx.tables.read(TableName("silver", safe_name(database.name, "a")))
    assert [name for name, _ in documents.dtypes if not name.startswith("_")] == ["document"]
    inside = "document:document::string", "document:more.a.`$numberDouble`::string", "_rescued"
    shown = documents.where("_key = '1'").selectExpr(*inside).first()
    assert shown is not None
    assert tuple(shown) == ("its own", "1.5", None)
    database.a.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    otherwise = with_silver(ctx, schema_mode="variant")
    with pytest.raises(ContractError, match=r"silver\.a: .*another silver\.schema_mode.*strandline rebuild silver\.a"):
        run_silver(otherwise)


# scenario: O09
def test_rows_without_a_position_are_no_fresh_start(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    table = bronze_table("test")
    ctx.tables.set_properties(table, {"delta.appendOnly": "false"})
    ctx.tables.delete(table, "batch IS NOT NULL")
    with pytest.raises(ContractError, match="holds rows and none that ends a batch"):
        run_capture(ctx, once=True)


# scenario: O08, and the lake of another source
def test_a_lake_of_another_deployment_is_refused(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    run_capture(ctx, once=True)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/bronze/test` SET TBLPROPERTIES ('strandline.cluster' = 'another')")
    with pytest.raises(ConfigurationError, match="another MongoDB deployment"):
        run_capture(ctx, once=True)


def test_two_collections_never_share_a_silver_table(
    spark: SparkSession, mongo_uri: str, database: Db, mongo: MongoClient[Any], tmp_path: Path
) -> None:
    other = mongo[database.name + "x"]
    database.same.insert_one({"_id": 1})
    other.same.insert_one({"_id": 1})
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, scope="deployment", target=None, database_include_list=f"{database.name}x?")
    run_capture(ctx, once=True)
    try:
        with pytest.raises(ContractError, match="database_collection"):
            run_silver(ctx)
        run_silver(with_silver(ctx, naming="database_collection"))
        assert {status.table.name for status in silver_status(ctx)} == {f"{database.name}__same", f"{other.name}__same"}
    finally:
        other.client.drop_database(other.name)


def test_hard_deletes_leave_a_tombstone_without_values(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), deletes="hard")
    database.a.insert_many([{"_id": n, "secret": "s"} for n in range(3)])
    land(ctx)
    database.a.delete_one({"_id": 1})
    land(ctx)
    (row,) = silver(ctx, "a").where("_deleted").collect()
    assert (row["_key"], row["secret"], row["_document"], row["_id"]) == ("1", None, None, None)
    assert_equal_to_source(ctx, database, "a")
    assert set(documents_in_silver(ctx, "a")) == {"0", "2"}


# scenario: E12, S08
def test_a_bronze_table_of_an_older_release_gets_its_columns_and_goes_on(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx, older = (pipeline(spark, mongo_uri, database.name, tmp_path / name) for name in ("new", "older"))
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    table = bronze_table("test")
    rows = bronze(ctx).drop("lineage", "whole")
    known = {key: value for key, value in ctx.tables.properties(table).items() if not key.startswith(("delta.min", "delta.feature"))}
    older.tables.create(table, rows.schema, properties=known, cluster_by=("collection", "position"))
    older.tables.append(table, rows)
    database.a.insert_one({"_id": 2})
    land(older)
    assert_equal_to_source(older, database, "a")
    assert set(bronze(older).columns) == set(bronze(ctx).columns)
    assert bronze(older).where("op = 'c'").select("key").collect() == [("2",)]
    assert show_offset(older).lineage == 1


# scenario: Q06
def test_four_silver_runs_at_once_end_as_one_does(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
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
@pytest.mark.skipif(configured_uri() is not None, reason="failpoints need a server with enableTestCommands, the embedded one")
def test_an_answer_that_takes_long_is_not_taken_for_the_end(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[Any], database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 2})
    slow = {"failCommands": ["getMore", "aggregate"], "blockConnection": True, "blockTimeMS": 1500, "appName": "strandline"}
    mongo.admin.command("configureFailPoint", "failCommand", mode={"times": 4}, data=slow)
    try:
        assert run_capture(ctx, once=True).events == 1
    finally:
        mongo.admin.command("configureFailPoint", "failCommand", mode="off")


# scenario: I07
def test_every_prefix_of_bronze_is_a_prefix_of_what_was_appended(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[Any], database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, max_batch_size=20)
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
