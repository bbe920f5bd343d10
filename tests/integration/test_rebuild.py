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
from strandline.jobs.capture.job import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.operations.sql import run_sql
from strandline.jobs.silver.job import run_silver
from strandline.jobs.silver.rebuild import run_rebuild
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


# scenario: S02, O11
@pytest.mark.long
def test_a_table_is_rebuilt_retyped_and_maintained(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams")
    database.orders.insert_many([{"_id": number, "price": number} for number in range(20)])
    caught_up(ctx)
    database.orders.update_one({"_id": 1}, {"$set": {"price": Decimal128("1.10")}})
    database.orders.update_one({"_id": 2}, {"$set": {"note": "gift"}})
    database.orders.delete_one({"_id": 3})
    caught_up(ctx)
    assert silver(ctx, "orders").where("_rescued IS NOT NULL").count() == 1
    with pytest.raises(ConfigurationError, match=r"rebuilt only while it is stopped.*strandline stop"):
        run_rebuild(ctx, "silver.orders")
    with pytest.raises(ConfigurationError, match="no silver table"):
        run_rebuild(ctx, "silver.order", dry_run=True)

    # A rebuild of some keys. A dry run finds the same differences and changes nothing.
    ctx.tables.update(ORDERS, {"_position": "'0'"}, "_key = '5'")
    ctx.tables.delete(ORDERS, "_key = '6'")
    before = ctx.tables.version(ORDERS)
    dry = run_rebuild(ctx, "silver.orders", dry_run=True)
    assert (dry.rows, dry.missing, dry.extra, dry.different, dry.swapped) == (20, 1, 0, 1, False)
    assert dry.retyped == (("price", "bigint", "decimal(38,2)"),)
    assert ctx.tables.version(ORDERS) == before
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    some = run_rebuild(ctx, "orders", keys=["5", "6", "7"])
    assert (some.rows, some.missing, some.extra, some.different, some.swapped) == (3, 1, 0, 1, True)

    # A rebuild of the whole table with new column types, in one commit.
    ghost = silver(ctx, "orders").where("_key = '9'").withColumn("_key", F.lit("99"))
    ctx.tables.append(ORDERS, ghost)
    before = ctx.tables.version(ORDERS)
    whole = run_rebuild(ctx, "silver.orders")
    assert (whole.rows, whole.missing, whole.extra, whole.different) == (20, 0, 1, 0)
    assert ctx.tables.version(ORDERS) == before + 2, "the swap, and the commit that turns the change feed on again"
    assert not ctx.tables.exists(TableName("control", "rebuild_orders"))
    rows = silver(ctx, "orders")
    assert rows.where("_rescued IS NOT NULL").isEmpty()
    assert [str(row["price"]) for row in rows.where("_key = '1'").collect()] == ["1.10"]
    assert ctx.tables.read(SCHEMA_CHANGES).where("path = 'price' AND after LIKE 'decimal%'").count() == 1

    # Maintenance compacts small files. Silver continues: progress, shape and patches were swapped with the table.
    set_desired_state(ctx, "running", by="ops", why=None)
    maintained = {done.table: done for done in run_maintain(ctx)}
    assert {"bronze.test", "silver.orders"} <= maintained.keys()
    assert all(not done.note for done in maintained.values())
    assert ctx.tables.properties(ORDERS)["delta.deletedFileRetentionDuration"] == "interval 168 hours"
    assert run_silver(ctx) == []
    database.orders.update_one({"_id": 4}, {"$set": {"price": Decimal128("0.25"), "extra": True}})
    database.orders.delete_one({"_id": 5})
    caught_up(ctx)
    assert_equal_to_source(ctx, database, "orders")
    events = run_sql(
        ctx, "select id, op from bronze.test_debezium_tombstones where topic like '%.orders' and id = '5'"
    ).collect()
    assert sorted((row["id"], str(row["op"])) for row in events) == [("5", "None"), ("5", "d"), ("5", "r")]

    # Purged tombstones are no difference. A rebuild restores them, and the next purge deletes them again.
    assert [purge(ctx) for _ in range(2)] == [0, 1]
    dry = run_rebuild(ctx, "silver.orders", dry_run=True)
    assert (dry.missing, dry.extra, dry.different) == (0, 0, 0)
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    run_rebuild(ctx, "silver.orders")
    assert silver(ctx, "orders").where("_deleted").count() == 2
    assert purge(ctx) == 1
    assert_equal_to_source(ctx, database, "orders")
