"""Reconcile: differences between source and silver are found by key and repaired through bronze."""

from __future__ import annotations

import datetime
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId
from lakehouse import COMPATIBILITY, bronze, documents_in_silver, land, pipeline, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import ConfigurationError, RetriableError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.reconcile.repair import time_after
from strandline.jobs.reconcile.run_reconcile import differing_keys, run_reconcile
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.position import snapshot_position
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.source.client import ConnectionOptions, open_client, operation_time

Db = Database[dict[str, Any]]
EARLY = datetime.datetime(1, 1, 1)
BRONZE = bronze_table("test")
ODD = [None, 2.5, "text", {"a": 1}, ObjectId(), True, Decimal128("7E3"), 2**40]


# scenario: T08
def test_silver_is_held_against_the_source_and_repaired_through_bronze(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    stages = [{"$match": {"$or": [{"fullDocument": None}, {"fullDocument.city": {"$ne": "Rome"}}]}}]
    rules = {"cursor_pipeline": json.dumps(stages), "field_exclude_list": "*.*.secret"}
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_chunk_size=50, **rules)
    database.people.insert_many([{"_id": number, "city": "Paris", "secret": number} for number in range(200)])
    database.people.insert_many([{"_id": identifier, "city": "Oslo"} for identifier in ODD])
    database.gone.insert_one({"_id": 1})
    with pytest.raises(ConfigurationError, match="no offset yet"):
        run_reconcile(ctx)
    run_capture(ctx, once=True)
    run_silver(ctx)

    # One document leaves the user's filter, one is inserted outside it. While the lake is behind, nothing is compared.
    database.people.update_one({"_id": 17}, {"$set": {"city": "Rome"}})
    database.people.insert_many([{"_id": 300, "city": "Rome"}, {"_id": 200, "city": "Paris"}])
    database.gone.drop()
    with pytest.raises(RetriableError, match="bronze lacks"):
        run_reconcile(ctx, wait_seconds=0)
    run_capture(ctx, once=True)
    with pytest.raises(RetriableError, match="silver lacks"):
        run_reconcile(ctx, wait_seconds=0)
    run_silver(ctx)
    with pytest.raises(ConfigurationError, match="no collection that is captured"):
        run_reconcile(ctx, collections=["no.such"])

    # Four more rows of silver are damaged. All differences are found and read again.
    damage(ctx, TableName("silver", "people"))
    expected = {
        "17": "different",
        "300": "missing",
        '"text"': "missing",
        "5": "different",
        "9999": "extra",
        "8888": "extra",
    }
    version = ctx.tables.version(BRONZE)
    run = run_reconcile(ctx, repairs=True)
    assert {(row["collection"], row["key"]): row["kind"] for row in differing_keys(ctx, run.run_id, 100)} == {
        ("people", key): kind for key, kind in expected.items()
    }
    gone, people = run.collections
    assert (gone.documents, gone.differing) == (0, 0)
    assert (people.documents, people.missing, people.extra, people.different, people.repaired) == (210, 2, 2, 2, 6)
    assert 0 < people.differing < people.ranges
    assert run.holds
    assert ctx.tables.version(BRONZE) == version + 1
    landed = bronze(ctx).where(F.col("snapshot_id") == "reconcile")
    landed_keys = {op: sorted(row["key"] for row in landed.where(F.col("op") == op).collect()) for op in "rd"}
    assert landed_keys == {"r": ['"text"', "17", "300", "5"], "d": ["8888", "9999"]}

    run_silver(ctx)
    assert [result.differing for result in run_reconcile(ctx).collections] == [0, 0]
    assert all(b"secret" not in document for document in documents_in_silver(ctx, "people").values())


def damage(ctx: JobContext, name: TableName) -> None:
    """Delete one row, change one document, and add two extra rows: one with a document, one without."""
    ctx.tables.delete(name, """_key = '"text"'""")
    ctx.tables.update(name, {"_document": f"X'{bson.encode({'_id': 5}).hex()}'"}, "_key = '5'")
    ghost = ctx.tables.read(name).where("_key = '6'")
    ctx.tables.append(name, ghost.withColumns({"_key": F.lit("9999"), "_document": F.lit(bson.encode({"_id": 9999}))}))
    waiting = {"_key": F.lit("8888"), "_document": F.lit(None), "_base_position": F.lit(None)}
    ctx.tables.append(name, ghost.withColumns(waiting))


def test_a_column_or_a_rescued_value_that_is_not_the_documents_is_a_difference(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), history="scd2", compatibility=COMPATIBILITY)
    documents: list[dict[str, Any]] = [
        {"_id": number, "total": Decimal128("0.00"), "lines": [{"n": number}], "x": {"at": EARLY}, "m": [1, "a"]}
        for number in range(6)
    ]
    database.a.insert_many([*documents, {"_id": 6, "_op": "mine"}])
    land(ctx)
    (right,) = run_reconcile(ctx, typed=True).collections
    assert (right.differences, right.late) == (0, 0)

    table, history = TableName("silver", "a"), TableName("silver", "a_history")
    ctx.tables.update(table, {"total": "NULL"}, "_key = '1'")
    ctx.tables.update(table, {"lines": "array(named_struct('n', CAST(7 AS BIGINT)))"}, "_key = '2'")
    ctx.tables.update(table, {"_rescued": "NULL"}, "_key = '6'")
    ctx.tables.update(history, {"x": "NULL"}, "_key = '3'")
    assert run_reconcile(ctx).holds, "the documents are right"
    run = run_reconcile(ctx, typed=True, repairs=True)
    assert [(row["kind"], row["key"], row["paths"]) for row in differing_keys(ctx, run.run_id, 100)] == [
        ("column", "1", ["total"]),
        ("column", "2", ["lines.0.n"]),
        ("column", "6", ["_op"]),
        ("history", "3", ["x"]),
    ]
    (wrong,) = run.collections
    assert (wrong.column, wrong.history, wrong.repaired, run.holds) == (3, 1, 3, False)
    run_silver(ctx)
    (after,) = run_reconcile(ctx, typed=True).collections
    assert (after.column, after.history) == (0, 1)


def test_a_repair_of_an_idle_source_waits_for_a_later_cluster_time(mongo_uri: str, database: Db) -> None:
    database.a.insert_one({"_id": 1})
    with closing(open_client(ConnectionOptions(mongo_uri), raw=True)) as client:
        before = operation_time(client)
        assert time_after(client, snapshot_position(*before)) > before
