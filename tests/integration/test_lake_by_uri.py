"""A lake whose root is a URI: only Spark sees its files, as in an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from lakehouse import assert_equal_to_source, bronze, land, spark_pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.errors import ContractError
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_swap import discard
from strandline.jobs.context import JobContext
from strandline.jobs.maintenance.delete_source import delete_source
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.operations.sql import versions
from strandline.jobs.operations.status import quarantined_rows, silver_status
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.model.lake_format import stamp
from strandline.model.tables import Lake, TableName
from strandline.silver.silver_table import SilverTable

Db = Database[dict[str, Any]]
ORDERS = TableName("silver", "orders")


def by_uri(spark: SparkSession, mongo_uri: str, database: Db, folder: Path) -> JobContext:
    return spark_pipeline(spark, mongo_uri, database.name, f"file://{folder}/lake", mode="change_streams")


def names(ctx: JobContext, layer: str) -> list[str]:
    return [table.name for table in ctx.tables.names(layer)]


def test_every_verb_works_in_a_lake_by_uri(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = by_uri(spark, mongo_uri, database, tmp_path)
    assert names(ctx, "silver") == []
    database.orders.insert_many([{"_id": number, "n": number} for number in range(20)])
    land(ctx)
    database.orders.delete_one({"_id": 3})
    land(ctx)
    (status,) = silver_status(ctx)
    assert (status.table, status.live, status.tombstones) == (ORDERS, 19, 1)
    assert quarantined_rows(ctx) == {}
    assert versions(ctx, "silver.orders").count() == 20
    maintained = {done.table: done for done in run_maintain(ctx)}
    assert {"bronze.test", "silver.orders", "control.cuts"} <= set(maintained)
    assert all(not done.note for done in maintained.values())

    # a rebuild never believes what an earlier one has left
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    found = run_rebuild(ctx, "silver.orders")
    assert (found.missing, found.extra, found.different) == (0, 0, 0)
    assert_equal_to_source(ctx, database, "orders")
    assert [name for name in names(ctx, "control") if name.startswith("rebuild")] == []

    # what is deleted is gone, so the source can begin anew
    assert delete_source(ctx, by="ops", why=None) == [ORDERS, TableName("bronze", "test")]
    assert names(ctx, "silver") == names(ctx, "bronze") == []
    assert not ctx.tables.exists(ORDERS)
    set_desired_state(ctx, "running", by="ops", why=None)
    land(ctx)
    assert_equal_to_source(ctx, database, "orders")
    assert bronze(ctx).where("op = 'r'").count() == 19


@pytest.mark.long
def test_a_rebuild_that_lacks_keys_of_bronze_is_not_swapped_in(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = by_uri(spark, mongo_uri, database, tmp_path)
    database.orders.insert_many([{"_id": number} for number in range(5)])
    land(ctx)
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    at = TableName("control", "rebuild_orders_00000000")
    left = TableName("control", "rebuild_orders_0000000f")
    ctx.tables.create(left, schema_of("_key STRING"))
    before = ctx.tables.version(ORDERS)

    # a shadow that is there already, and says that it is complete
    monkeypatch.setattr("strandline.model.tables.uuid.uuid4", lambda: UUID(int=0))
    monkeypatch.setattr("strandline.jobs.silver.shadow_table._remove", lambda *_: None)
    SilverTable(ctx.tables, at).create_empty_copy(SilverTable(ctx.tables, ORDERS), f"{database.name}.orders")
    state = {key: value for key, value in ctx.tables.properties(ORDERS).items() if key.startswith("strandline.")}
    ctx.tables.set_properties(at, state | stamp(at))
    for arguments in ({}, {"keys": ["3"]}, {"dry_run": True}):
        with pytest.raises(
            ContractError, match=r"the rebuilt silver\.orders lacks [51] keys that bronze has.*strandline rebuild"
        ):
            run_rebuild(ctx, "silver.orders", **arguments)
    assert ctx.tables.version(ORDERS) == before
    monkeypatch.undo()
    assert run_rebuild(ctx, "silver.orders").swapped
    for arguments in ({"dry_run": True}, {"keys": ["3", "4"]}):
        found = run_rebuild(ctx, "silver.orders", **arguments)
        assert (found.missing, found.extra, found.different) == (0, 0, 0), arguments
    assert [name for name in names(ctx, "control") if name.startswith("rebuild")] == [], (
        "what killed rebuilds left is gone"
    )
    assert_equal_to_source(ctx, database, "orders")


def test_tables_are_listed_and_removed_beside_foreign_files(spark: SparkSession, tmp_path: Path) -> None:
    tables, table = Tables(spark, Lake(root=f"file://{tmp_path}/la'ke [x]{{*}}?/")), TableName("control", "t")
    tables.create(table, schema_of("a INT"))
    tables.create(TableName("control", "other"), schema_of("a INT"))
    assert [each.name for each in tables.names("control")] == ["other", "t"]
    discard(tables, table)
    discard(tables, table)
    assert [each.name for each in tables.names("control")] == ["other"]
    tables.create(table, schema_of("b INT"))
    assert tables.read(table).columns == ["b"]
