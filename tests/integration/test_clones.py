"""Clones and tables of other programs beside ours: no command lists, changes or drops them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lake_place import PLACE
from lakehouse import assert_equal_to_source, land, pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError
from strandline.io.tables.table_store import own_tables
from strandline.jobs.lake_context import open_without_spark
from strandline.jobs.maintenance.delete_source import delete_source
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.operations.dbt_sources import lake_sources
from strandline.jobs.operations.status import silver_tables
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.model.tables import LAYERS, TableName

Db = Database[dict[str, Any]]
pytestmark = pytest.mark.skipif(PLACE != "folder", reason="Delta clones by path")


def test_clones_and_foreign_tables_are_left_alone(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.orders.insert_many([{"_id": number, "n": number} for number in range(10)])
    land(ctx)
    ours = {str(table) for table in own_tables(ctx.tables, *LAYERS)}
    assert {"bronze.test", "silver.orders", "control.cuts"} <= ours
    sql, orders = ctx.tables.lake.sql, TableName("silver", "orders")
    clones = {
        TableName("silver", "orders_copy"): orders,
        TableName("silver", f"{database.name}__orders"): orders,  # the other name that silver.naming: auto knows
        TableName("control", "cuts_copy"): TableName("control", "cuts"),
        TableName("gold", "orders"): orders,
        TableName("bronze", "test_copy"): TableName("bronze", "test"),
    }
    for clone, source in clones.items():
        spark.sql(f"CREATE TABLE {sql(clone)} SHALLOW CLONE {sql(source)}")
    vectors = TableName("silver", "vectors")
    spark.sql(
        f"CREATE TABLE {sql(vectors)} USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        " AS SELECT id FROM range(9)"
    )
    foreign = [*clones, vectors]
    before = {table: ctx.tables.version(table) for table in foreign}
    database.orders.update_many({}, {"$inc": {"n": 1}})
    land(ctx)
    assert_equal_to_source(ctx, database, "orders")

    assert {str(table) for table in own_tables(ctx.tables, *LAYERS)} == ours
    assert [str(table) for table, _ in silver_tables(ctx.tables)] == ["silver.orders"]
    without = open_without_spark(ctx.settings)
    assert without is not None
    assert [str(table) for table, _ in silver_tables(without.tables)] == ["silver.orders"]
    assert "orders_copy" not in str(lake_sources(ctx, "delta_scan")), "dbt"
    assert {result.table for result in run_maintain(ctx)} == ours
    with pytest.raises(ConfigurationError, match="orders_copy"):
        run_rebuild(ctx, "orders_copy", dry_run=True)
    set_desired_state(ctx, "stopped", by="ops", why=None)
    dropped = {str(table) for table in delete_source(ctx, by="ops", why=None)}
    assert dropped == {"silver.orders", "bronze.test"}
    assert {table: ctx.tables.version(table) for table in foreign} == before
