"""`maintain` on tables of every kind: old files of gold go, and no table that Strandline makes is left out."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from strandline.gold.graph import parse
from strandline.gold.publish import publish
from strandline.gold.small_merge import SmallTable
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.model import table_schemas
from strandline.model.quarantine import QUARANTINE_DDL, quarantine_of, quarantine_properties
from strandline.model.tables import LAYERS, TableName
from strandline.settings.configuration import LakeSettings, Settings
from strandline.settings.maintenance import MaintenanceSettings

ORDERS, T = TableName("silver", "orders"), TableName("gold", "t")
CONTROL = {
    value: getattr(table_schemas, f"{name}_DDL")
    for name, value in vars(table_schemas).items()
    if isinstance(value, TableName) and value.layer == "control"
}


def _context(tables: Tables, hours: int) -> JobContext:
    maintenance = MaintenanceSettings().model_copy(update={"retention_hours": hours, "max_downtime_hours": hours})
    settings = Settings(lake=LakeSettings(root=tables.lake.root), maintenance=maintenance)
    return JobContext(settings=settings, spark=tables.spark, tables=tables)


def _gold(tables: Tables) -> None:
    tables.replace(ORDERS, tables.spark.range(1000).selectExpr("id AS x", "uuid() AS note"))
    sql = "-- materialized: incremental\n-- keys: x\nselect x, note from silver.orders"
    assert [each.status for each in publish(tables, parse({"t.sql": sql}))] == ["built"]


def test_files_that_gold_has_replaced_go_and_its_rows_stay(tables: Tables) -> None:
    _gold(tables)
    here, folder = DeltaRsTables(tables.lake), Path(tables.lake.path(T))
    for build in range(5):
        opened = SmallTable.open(here, T, ["x"])
        assert opened is not None
        key = pa.table({"x": pa.array([build], pa.int64())})
        opened.merge(key, key.append_column("note", pa.array([f"new {build}"])))
    before = {file.relative_to(folder) for file in folder.rglob("*.parquet")}
    assert len(before) >= 10, "data files and change files of five builds"
    time.sleep(1.1)  # VACUUM compares times of whole seconds
    maintained = [result.table for result in run_maintain(_context(tables, hours=0))]
    assert "gold.t" in maintained
    left = [file for file in folder.rglob("*.parquet") if "_delta_log" not in file.parts]
    assert len(left) == here.folder(T).table().get_add_actions().num_rows == 1
    assert tables.read(T).where("note like 'new %'").count() == 5
    assert tables.read(T).count() == 1000
    assert tables.properties(T)["delta.deletedFileRetentionDuration"] == "interval 0 hours"


def test_every_table_that_a_command_creates_is_maintained(tables: Tables) -> None:
    assert LAYERS == ("bronze", "silver", "gold", "control"), "a new layer needs maintenance"
    _gold(tables)
    for name in ("orders_history", "orders_dropped_20240101000000"):
        tables.create(TableName("silver", name), schema_of("x INT"))
    tables.create(quarantine_of(ORDERS), schema_of(QUARANTINE_DDL), properties=quarantine_properties(ORDERS))
    for table, ddl in CONTROL.items():
        tables.create(table, schema_of(ddl))
    foreign = TableName("gold", "foreign")
    tables.spark.range(1).write.format("delta").save(tables.lake.path(foreign))
    there = {str(table) for layer in LAYERS for table in tables.names(layer)}
    assert len(there) >= 12
    maintained = {result.table for result in run_maintain(_context(tables, hours=24))}
    assert there - maintained == {"gold.foreign"}, "a table of another program is its own"
    assert tables.version(foreign) == 0
