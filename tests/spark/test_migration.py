"""A lake of an older format, without its source: what a migration writes, and what it leaves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from crashing import Crash
from lakehouse import restore
from older_lakes import commits, unpack
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from strandline.bronze.ownership import SOURCE
from strandline.control.cuts import cuts
from strandline.errors import ConfigurationError
from strandline.io import migration
from strandline.io.ddl import schema_of
from strandline.io.format_check import refuse_newer_lake
from strandline.io.tables import Tables
from strandline.jobs.context import JobContext, open_context
from strandline.jobs.migration import describe_format, migrate
from strandline.jobs.operations.status import silver_status
from strandline.model.lake_format import FORMAT, FORMAT_PROPERTY, STAMP, column_names, format_of
from strandline.model.table_schemas import BRONZE_DDL, CUTS, CUTS_DDL, bronze_table
from strandline.model.tables import Lake, TableName
from strandline.settings.configuration import Settings
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.silver_table import SilverTable

BRONZE, PEOPLE = bronze_table("shop"), TableName("silver", "people")
WATERMARK = "0000000100000001:82"
NEWER = {FORMAT_PROPERTY: str(FORMAT + 1)}


def context(spark: SparkSession, lake: Path) -> JobContext:
    settings = Settings(source={"name": "shop"}, lake={"root": str(lake)})  # type: ignore[arg-type]  # why: pydantic builds the sections
    return JobContext(settings, spark, Tables(spark, Lake(root=str(lake))))


@pytest.fixture
def older(spark: SparkSession, tmp_path: Path) -> JobContext:
    ctx = context(spark, unpack(0, tmp_path))
    ctx.tables.set_properties(PEOPLE, {"strandline.floor": WATERMARK})  # as a purge of that release left it
    return ctx


def tables_of(ctx: JobContext) -> list[TableName]:
    return [table for layer in ("bronze", "control", "silver", "gold") for table in ctx.tables.names(layer)]


def shown(ctx: JobContext) -> dict[str, Any]:
    """Return the rows of the lake that readers see."""
    whole = BronzeIncrement.read(ctx.tables, BRONZE, -1, ctx.tables.version(BRONZE)).reach
    silver = {table: SilverTable(ctx.tables, table).purge_watermark() for table in ctx.tables.names("silver")}
    properties = {
        name: value for name, value in ctx.tables.properties(BRONZE).items() if name.startswith("strandline.")
    }
    properties.pop(FORMAT_PROPERTY, None)
    return {"cuts": cuts(ctx.tables, limit=100), "reach": whole, "silver": silver, "bronze": properties}


def types_of(schema: StructType) -> dict[str, DataType]:
    """Return names and types. A table keeps the column comments that it was created with."""
    return {field.name: field.dataType for field in schema}


def test_every_table_gets_the_format_and_readers_see_the_same(older: JobContext) -> None:
    lake = Path(older.tables.lake.root or "")
    before, count = shown(older), commits(lake)
    assert before["silver"][PEOPLE] == WATERMARK
    assert describe_format(older) == (
        f"0: the next capture, silver, run or maintain brings {len(count)} tables to 1; "
        "control.cuts (because becomes inexact_reasons); bronze.shop (whole becomes ends_outside_transaction)"
    )
    assert commits(lake) == count, "to look writes nothing"
    migrated = migrate(older)
    assert (migrated[0], migrated[-1], set(migrated)) == (CUTS, BRONZE, set(tables_of(older)))
    assert {format_of(older.tables.properties(table)) for table in tables_of(older)} == {FORMAT}
    assert shown(older) == before
    changed = {table: number - count[table] for table, number in commits(lake).items()}
    assert changed == dict.fromkeys(count, 1) | {"bronze.shop": 2}, "bronze gets a column, and then the format"
    assert types_of(older.tables.read(CUTS).schema) == types_of(schema_of(CUTS_DDL))
    assert set(older.tables.read(BRONZE).columns) == {*schema_of(BRONZE_DDL).names, "whole"}
    assert older.tables.detail(CUTS)["description"]
    assert not [name for name in older.tables._metadata(CUTS).properties if "ledger" in name]  # type: ignore[union-attr]  # why: a folder
    after = commits(lake)
    assert migrate(older, everything=True) == migrate(older) == []
    assert (commits(lake), describe_format(older)) == (after, "1")


@pytest.mark.long
def test_a_migration_that_is_cut_off_anywhere_is_ended_by_the_next_one(
    older: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, total = shown(older), 0
    statement, properties = migration._commit, Tables.set_properties
    left = [0]

    def counted(call: Any) -> Any:
        def commit(*given: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash
            call(*given)

        return commit

    monkeypatch.setattr(migration, "_commit", counted(statement))
    monkeypatch.setattr(Tables, "set_properties", counted(properties))
    done = False
    while not done:
        left[0] = 1  # one commit, then the end, again and again
        try:
            migrate(older)
            done = True
        except Crash:
            total += 1
            if total in (
                1,
                2,
                len(tables_of(older)),
            ):  # behind cuts, behind the next one, and between the two of bronze
                assert shown(older) == before
    assert total == len(tables_of(older))
    assert shown(older) == before
    assert {format_of(older.tables.properties(table)) for table in tables_of(older)} == {FORMAT}


@pytest.mark.long
def test_of_two_migrations_at_once_one_wins_and_the_other_goes_on(older: JobContext) -> None:
    before = shown(older)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: migrate(older), range(2)))
    assert shown(older) == before
    assert older.tables.read(CUTS).count() == len(before["cuts"])
    assert {format_of(older.tables.properties(table)) for table in tables_of(older)} == {FORMAT}


@pytest.mark.parametrize("newer", [BRONZE, CUTS])
def test_a_newer_lake_is_refused_and_nothing_is_written(older: JobContext, newer: TableName) -> None:
    lake = Path(older.tables.lake.root or "")
    older.tables.set_properties(newer, NEWER)
    before = commits(lake)
    with pytest.raises(ConfigurationError, match=f"{newer} has format {FORMAT + 1}"):
        open_context(older.settings)
    with pytest.raises(ConfigurationError, match="nothing was written"):
        migrate(older, everything=True)
    assert commits(lake) == before


def test_a_newer_table_is_refused_where_it_is_opened(tables: Tables) -> None:
    for table in (PEOPLE, TableName("control", "signals"), BRONZE):
        tables.create(table, schema_of("a INT"), properties={SOURCE: "shop"})
        assert tables.properties(table).items() >= STAMP.items()
        tables.set_properties(table, NEWER)
        version = tables.version(table)
        with pytest.raises(ConfigurationError, match=f"{table} has format {FORMAT + 1}"):
            tables.create(table, schema_of("a INT"))
        assert tables.version(table) == version
    with pytest.raises(ConfigurationError, match="has format"):
        refuse_newer_lake(tables, BRONZE)


@pytest.mark.long
def test_a_table_that_was_restored_to_an_older_format_is_migrated_when_it_is_opened(older: JobContext) -> None:
    version = older.tables.version(PEOPLE)
    migrate(older)
    restore(older, PEOPLE, version)
    assert format_of(older.tables.properties(PEOPLE)) == 0
    assert SilverTable(older.tables, PEOPLE).purge_watermark() == WATERMARK
    SilverTable(older.tables, PEOPLE).open("shop.people", "shop")
    assert format_of(older.tables.properties(PEOPLE)) == FORMAT
    assert silver_status(older)


@pytest.mark.long
def test_the_rows_of_bronze_keep_what_the_old_column_said(older: JobContext) -> None:
    old, new = column_names(BRONZE, "ends_outside_transaction")[::-1]
    said = older.tables.read(BRONZE).where(f"{old} IS NOT NULL").count()
    migrate(older)
    assert said > 0
    assert older.tables.read(BRONZE).where(f"coalesce({new}, {old}) IS NOT NULL").count() == said
