"""What documents become in silver: every id, every value, every type, each collection in its own table."""

from __future__ import annotations

import datetime
import json
import os
import uuid
from pathlib import Path
from typing import Any

import bson
import pytest
from lakehouse import (
    assert_equal_to_source,
    bronze,
    documents_in_silver,
    documents_in_source,
    land,
    pipeline,
    silver,
    with_silver,
    without_utf8,
)
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import ContractError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.operations.schema_changes import schema_history
from strandline.jobs.operations.status import silver_columns, silver_status
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName, history_of, safe_name
from strandline.source.client import AnyClient, find_collection, operation_time
from strandline.source.ranges import ranges_between, read_range

Db = Database[dict[str, Any]]


# scenario: A09, A10, A11, A20, L03, L04, B13
def test_every_id_type_is_read_in_ranges_and_stays_one_row(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
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


# scenario: A10, A20
@pytest.mark.parametrize(
    "options", [{}, {"clusteredIndex": {"key": {"_id": 1}, "unique": True}}], ids=["plain", "clustered"]
)
def test_the_first_and_the_last_id_that_there_can_be_are_read_once(
    raw_client: AnyClient, database: Db, options: dict[str, Any]
) -> None:
    documents = [{"_id": value} for value in (bson.MinKey(), 1, "x", bson.MaxKey())]
    database.create_collection("ends", **options).insert_many(documents)
    ends = find_collection(raw_client[database.name], "ends")
    assert ends is not None
    chunks = ranges_between([bson.encode(document) for document in documents])
    lists = [read for chunk in chunks for read in read_range(raw_client, ends, chunk, operation_time(raw_client))]
    assert [bson.decode(document) for read in lists for document in read] == documents


def awkward_documents() -> list[dict[str, Any]]:
    deep: dict[str, Any] = {}
    for _ in range(90):
        deep = {"d": deep}
    return [
        {"_id": 1, "date": bson.DatetimeMS(2**62), "dec": bson.Decimal128("NaN"), "": "empty", "a.b": 1, "$x": 1},
        {
            "_id": 2,
            "date": datetime.datetime(1, 1, 1),
            "A": 1,
            "a": 2,
            "like": {"$oid": "0" * 24},
            "re": bson.Regex("a", "imx"),
        },
        {
            "_id": 3,
            "deep": deep,
            "big": bson.Int64(2**63 - 1),
            "nul": "a\0b",
            "ts": bson.Timestamp(1, 2),
            "_key": "mine",
            "_position": 0,
        },
        {
            "_id": 4,
            "min": bson.MinKey(),
            "max": bson.MaxKey(),
            "code": bson.Code("f()", {"x": 1}),
            "sub6": bson.Binary(b"q", 6),
            "ref": bson.DBRef("c", 1),
        },
        {"_id": 5, "date": "text now", "big": 1, "new\nline": 1, "quo`te'\"": 1, "emoji 🛫": [[], {}, None]},
        {"_id": "${name}", "price_${currency}": 1, "x${env:HOME}": 1, "inner": {"${env:HOME}": 1}},
    ]


# scenario: L06, L09, L12, L13, L14, L15, K05, K09, M18, M19, U12
@pytest.mark.check
def test_awkward_documents_reach_silver_unchanged(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    documents = awkward_documents()
    database.odd.insert_many(documents)
    broken = without_utf8({"_id": 6, "t": "XXXX"}).raw
    database.odd.insert_one(bson.raw_bson.RawBSONDocument(broken))
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    land(ctx)
    assert_equal_to_source(ctx, database, "odd")
    database.odd.update_many({}, {"$set": {"touched": 1}})  # and once more through the change stream
    database.odd.insert_one(bson.raw_bson.RawBSONDocument(broken.replace(b"\x06\0\0\0\x02", b"\x07\0\0\0\x02")))
    land(ctx)
    assert_equal_to_source(ctx, database, "odd")
    rescued = (
        silver(ctx, "odd").select("_key", F.col("_rescued").cast("string").alias("r")).where("r is not null").collect()
    )
    texts = {row["_key"]: row["r"] for row in rescued}
    assert '"_key"' in texts["3"]
    assert "$bson" in texts["6"]
    assert "$bson" in texts["7"]
    assert "price_${currency}" in texts['"${name}"']
    log = "".join(file.read_text("utf-8") for file in (tmp_path / "silver" / "odd" / "_delta_log").glob("*.json"))
    assert f"x{os.environ['HOME']}" not in log, "a name of the source showed this process's environment"

    database.back.insert_many([bson.raw_bson.RawBSONDocument(raw) for raw in documents_in_silver(ctx, "odd").values()])
    assert documents_in_source(database, "back") == documents_in_source(database, "odd"), (
        "from the lake back into MongoDB"
    )


# scenario: S01, S03, T03
@pytest.mark.long
def test_columns_are_as_declared_or_the_document_is_one_variant(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    declaring = with_silver(
        ctx, columns={f"{database.name}.a": {"total": "decimal(2)", "lines": [{"sku": "string"}], "later": "date"}}
    )
    whole = with_silver(ctx, schema_mode="variant", naming="database_collection", compatibility="native")
    database.a.insert_many(
        [{"_id": 1, "total": bson.Decimal128("1.5")}, {"_id": "x", "total": "free", "lines": [{"sku": "s", "n": 1}]}]
    )
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
    assert (types["total"], types["lines"], types["later"]) == (
        "decimal(38,2)",
        "array<struct<sku:string>>",
        "timestamp",
    )
    rows = {
        row["_key"]: row
        for row in table.select("_key", "total", "lines.sku", F.col("_rescued").cast("string").alias("r")).collect()
    }
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


# scenario: A19
def test_two_databases_by_one_pattern_have_tables_of_their_own_and_end_on_their_own(
    spark: SparkSession, mongo_uri: str, database: Db, mongo: MongoClient[Any], tmp_path: Path
) -> None:
    other = mongo[database.name + "x"]
    database.same.insert_many([{"_id": number} for number in range(3)])
    database.alone.insert_one({"_id": 1})
    other.same.insert_many([{"_id": number} for number in range(2)])
    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path,
        scope="deployment",
        target=None,
        database_include_list=f"{database.name}x?",
    )
    run_capture(ctx, once=True)
    try:
        with pytest.raises(ContractError, match="database_collection"):
            run_silver(with_silver(ctx, naming="collection"))
        assert [table.name for table in ctx.tables.names("silver")] == ["alone"], (
            "one conflict holds back those two alone"
        )
        assert_equal_to_source(ctx, database, "alone")
    finally:
        mongo.drop_database(other.name)
    land(ctx)
    rows = bronze(ctx).where("db is not null").groupBy("db", "op", "operation_type").count().collect()
    counts = {(row["db"].removeprefix(database.name), row["op"], row["operation_type"]): row["count"] for row in rows}
    assert (counts["", "r", "read"], counts["x", "r", "read"]) == (4, 2)
    assert (counts["x", "ddl", "drop"], counts["x", "ddl", "dropDatabase"]) == (1, 1)
    left = {status.table.name: (status.live, status.tombstones) for status in silver_status(ctx)}
    assert left == {f"{database.name}__same": (3, 0), f"{other.name}__same": (0, 2), "alone": (1, 0)}, (
        "what was there keeps its name"
    )


def test_hard_deletes_leave_a_tombstone_without_values(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), deletes="hard")
    database.a.insert_many([{"_id": n, "secret": "s"} for n in range(3)])
    land(ctx)
    database.a.delete_one({"_id": 1})
    land(ctx)
    (row,) = silver(ctx, "a").where("_deleted").collect()
    assert (row["_key"], row["secret"], row["_document"], row["_id"]) == ("1", None, None, None)
    assert_equal_to_source(ctx, database, "a")
    assert set(documents_in_silver(ctx, "a")) == {"0", "2"}


# scenario: S09
@pytest.mark.long
def test_a_column_that_somebody_drops_or_renames_is_one_line_and_holds_back_no_other_table(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    # A portable table has no column mapping, so nobody can drop or rename its columns.
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), max_threads=1, compatibility="native")
    database.a.insert_one({"_id": 1, "total": 1})
    database.b.insert_one({"_id": 1})
    land(ctx)
    bronze_sql, silver_sql = (ctx.tables.lake.sql(table) for table in (bronze_table("test"), TableName("silver", "a")))
    for change in ("DROP COLUMN envelope", "RENAME COLUMN position TO pos"):
        with pytest.raises(AnalysisException, match=r"DELTA_UNSUPPORTED_(DROP|RENAME)_COLUMN"):
            spark.sql(f"ALTER TABLE {bronze_sql} {change}")
    spark.sql(f"ALTER TABLE {silver_sql} RENAME COLUMN total TO sum")
    database.a.update_one({"_id": 1}, {"$set": {"total": 2}})
    database.b.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    with pytest.raises(
        ContractError, match=r"silver\.a no longer has .*total.* dropped or renamed .*strandline rebuild silver\.a"
    ):
        run_silver(ctx)
    assert_equal_to_source(ctx, database, "b")
    spark.sql(f"ALTER TABLE {silver_sql} RENAME COLUMN sum TO total")
    assert {str(done.table): done.inserted + done.updated for done in run_silver(ctx)} == {"silver.a": 1, "silver.b": 0}
    assert_equal_to_source(ctx, database, "a", "b")
    assert silver(ctx, "a").select("total").collect() == [(2,)]
    spark.sql(f"ALTER TABLE {silver_sql} DROP COLUMN total")
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    run_rebuild(ctx, "silver.a")
    assert silver(ctx, "a").select("total").collect() == [(2,)]


@pytest.mark.long
def test_tables_and_columns_are_named_as_asked_for(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    naming = {
        "naming": "database_collection",
        "table_prefix": "raw_",
        "table_delimiter": "_",
        "field_name_adjustment_mode": "avro",
    }
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), history="scd2", **naming)
    database.a.insert_one({"_id": 1, "unit price": 2, "unit_price": 3, "s": {"x-y": [{"z$": None}, {"z$": 1.5}]}})
    land(ctx)
    table = TableName("silver", safe_name(database.name, "a", prefix="raw_", delimiter="_"))
    assert table.name.startswith("raw_")
    shown = "unit_price", "s.x_y.z_", "get_json_object(CAST(_rescued AS STRING), '$.unit_price.type')"
    for layer in (table, history_of(table)):
        assert [tuple(row) for row in ctx.tables.read(layer).selectExpr(*shown).collect()] == [(2, [None, 1.5], "int")]
    assert {column.column for column in silver_columns(ctx)} >= {"unit_price", "s"}
    assert [bson.decode(bytes(row[0])) for row in ctx.tables.read(table).select("_document").collect()] == list(
        database.a.find()
    )


# scenario: B02, B03
@pytest.mark.long
@pytest.mark.parametrize("full_update_type", ["lookup", "post_image"])
def test_a_replacement_by_a_pipeline_is_stored_with_its_id_first(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, full_update_type: str
) -> None:
    """Its event has ``_id`` where the pipeline put it; the server stores it first."""
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    ctx = with_silver(
        pipeline(spark, mongo_uri, database.name, tmp_path, full_update_type=full_update_type), history="scd2"
    )
    database.a.insert_many([{"_id": number, "n": number} for number in range(4)])
    land(ctx)
    for number in range(3):
        database.a.update_one(
            {"_id": number}, [{"$replaceWith": {"$mergeObjects": [{"q": 1}, "$$ROOT", {"new": "x" * 40}]}}]
        )
    database.a.update_one({"_id": 2}, {"$set": {"n": 7}})
    land(ctx)
    assert_equal_to_source(ctx, database, "a")
    replaced = bronze(ctx).where("operation_type = 'replace'").select("envelope").collect()
    assert [next(iter(bson.decode(bytes(row[0]))["fullDocument"])) for row in replaced] == ["q", "q", "q"]
    newest = ctx.tables.read(history_of(TableName("silver", "a"))).where("_valid_to_position IS NULL")
    shown = {row["_key"]: bytes(row["_document"]) for row in newest.collect()}
    assert shown == documents_in_source(database, "a")
