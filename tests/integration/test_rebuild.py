"""Rebuild of silver from bronze, and maintenance of its tables."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from lakehouse import assert_equal_to_source, pipeline, purge, silver
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.operations.sql import run_sql
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import SCHEMA_CHANGES
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
ORDERS = TableName("silver", "orders")


def caught_up(ctx: JobContext) -> None:
    run_capture(ctx, once=True)
    run_silver(ctx)


def test_rebuild_since_a_time_uses_all_changes_of_each_key(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams")
    database.orders.insert_many([{"_id": number, "n": 0} for number in range(4)])
    caught_up(ctx)
    time.sleep(1)  # cluster time has seconds
    since = datetime.now(UTC).isoformat()
    database.orders.update_one({"_id": 1}, {"$inc": {"n": 1}})  # a patch without its document
    database.orders.delete_one({"_id": 2})
    database.orders.insert_one({"_id": 5})
    caught_up(ctx)
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    ctx.tables.update(ORDERS, {"n": "-1", "_document": "NULL"}, "_key IN ('0', '1')")
    ctx.tables.delete(ORDERS, "_key IN ('2', '3')")
    for wrong in ({"since": "yesterday"}, {"since": since, "keys": ["1"]}):
        with pytest.raises(ConfigurationError, match="--since"):
            run_rebuild(ctx, "orders", **wrong)
    found = run_rebuild(ctx, "orders", since=since)
    assert (found.rows, found.missing, found.extra, found.different, found.swapped) == (3, 1, 0, 1, True)
    rows = {row["_key"]: (row["n"], row["_deleted"]) for row in silver(ctx, "orders").collect()}
    assert rows == {"0": (-1, False), "1": (1, False), "2": (0, True), "5": (None, False)}


@pytest.fixture
def orders(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> JobContext:
    """Twenty documents in silver: one price waits for a wider column, and one document is deleted."""
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams")
    database.orders.insert_many([{"_id": number, "price": number} for number in range(20)])
    caught_up(ctx)
    database.orders.update_one({"_id": 1}, {"$set": {"price": Decimal128("1.10")}})
    database.orders.update_one({"_id": 2}, {"$set": {"note": "gift"}})
    database.orders.delete_one({"_id": 3})
    caught_up(ctx)
    return ctx


# scenario: S02
@pytest.mark.long
def test_some_keys_are_rebuilt_and_a_dry_run_before_it_changes_nothing(orders: JobContext) -> None:
    with pytest.raises(ConfigurationError, match=r"rebuilt only while it is stopped.*strandline stop"):
        run_rebuild(orders, "silver.orders")
    with pytest.raises(ConfigurationError, match="no silver table"):
        run_rebuild(orders, "silver.order", dry_run=True)
    orders.tables.update(ORDERS, {"_position": "'0'"}, "_key = '5'")
    orders.tables.delete(ORDERS, "_key = '6'")
    before = orders.tables.version(ORDERS)
    dry = run_rebuild(orders, "silver.orders", dry_run=True)
    assert (dry.rows, dry.missing, dry.extra, dry.different, dry.swapped) == (20, 1, 0, 1, False)
    assert dry.retyped == (("price", "bigint", "decimal(38,2)"),)
    assert orders.tables.version(ORDERS) == before
    set_desired_state(orders, "stopped", by="ops", why="a rebuild")
    some = run_rebuild(orders, "orders", keys=["5", "6", "7"])
    assert (some.rows, some.missing, some.extra, some.different, some.swapped) == (3, 1, 0, 1, True)


# scenario: S02, O11
@pytest.mark.long
def test_a_whole_table_gets_new_column_types_in_one_commit_and_goes_on(orders: JobContext, database: Db) -> None:
    assert silver(orders, "orders").where("_rescued IS NOT NULL").count() == 1
    set_desired_state(orders, "stopped", by="ops", why="a rebuild")
    ghost = silver(orders, "orders").where("_key = '9'").withColumn("_key", F.lit("99"))
    orders.tables.append(ORDERS, ghost)
    before = orders.tables.version(ORDERS)
    whole = run_rebuild(orders, "silver.orders")
    assert (whole.rows, whole.missing, whole.extra, whole.different) == (20, 0, 1, 0)
    assert orders.tables.version(ORDERS) == before + 2, "the swap, and the commit that turns the change feed on again"
    assert not orders.tables.exists(TableName("control", "rebuild_orders"))
    rows = silver(orders, "orders")
    assert rows.where("_rescued IS NOT NULL").isEmpty()
    assert [str(row["price"]) for row in rows.where("_key = '1'").collect()] == ["1.10"]
    assert orders.tables.read(SCHEMA_CHANGES).where("path = 'price' AND after LIKE 'decimal%'").count() == 1

    # progress, shape and patches were swapped with the table: silver continues
    set_desired_state(orders, "running", by="ops", why=None)
    assert run_silver(orders) == []
    database.orders.update_one({"_id": 4}, {"$set": {"price": Decimal128("0.25"), "extra": True}})
    caught_up(orders)
    assert_equal_to_source(orders, database, "orders")


@pytest.mark.long
def test_maintain_compacts_tables_and_purged_tombstones_are_no_difference(orders: JobContext, database: Db) -> None:
    maintained = {result.table: result for result in run_maintain(orders)}
    assert {"bronze.test", "silver.orders"} <= maintained.keys()
    assert all(not result.note for result in maintained.values())
    assert orders.tables.properties(ORDERS)["delta.deletedFileRetentionDuration"] == "interval 168 hours"
    database.orders.delete_one({"_id": 5})
    caught_up(orders)
    query = "select id, op from bronze.test_debezium_tombstones where topic like '%.orders' and id = '5'"
    events = sorted((row["id"], str(row["op"])) for row in run_sql(orders, query).collect())
    assert events == [("5", "None"), ("5", "d"), ("5", "r")]

    # a rebuild restores purged tombstones, and the next purge deletes them again
    assert [purge(orders) for _ in range(2)] == [0, 1]
    dry = run_rebuild(orders, "silver.orders", dry_run=True)
    assert (dry.missing, dry.extra, dry.different) == (0, 0, 0)
    set_desired_state(orders, "stopped", by="ops", why="a rebuild")
    run_rebuild(orders, "silver.orders")
    assert silver(orders, "orders").where("_deleted").count() == 2
    assert purge(orders) == 1
    assert_equal_to_source(orders, database, "orders")
