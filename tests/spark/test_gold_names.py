"""One answer for one name of gold: first builds, changes between view and table, and removed SQL files."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline import read
from strandline.errors import ConfigurationError
from strandline.gold.build_plan import plan
from strandline.gold.functions import STABLE, UNSTABLE
from strandline.gold.graph import parse
from strandline.gold.orphans import orphans
from strandline.gold.publish import publish
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.gold.planned import gold_orphans
from strandline.jobs.gold.run_gold import drop_gold, run_gold
from strandline.model.tables import Lake, TableName
from strandline.settings.configuration import LakeSettings, Settings
from strandline.settings.output import GoldSettings

A, T = TableName("silver", "a"), TableName("gold", "t")
TABLE = "-- materialized: table\n"


@pytest.fixture(params=["folder", "catalog"])
def anywhere(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Tables]:
    if request.param == "folder":
        yield Tables(spark, Lake(root=str(tmp_path / "lake")))
        return
    lake = Lake(catalog="spark_catalog", schema=f"g{uuid.uuid4().hex[:8]}")
    yield Tables(spark, lake)
    for layer in ("bronze", "silver", "control", "gold"):
        spark.sql(f"DROP SCHEMA IF EXISTS {lake.sql_schema(layer)} CASCADE")


def _rows(tables: Tables, *values: int) -> None:
    tables.replace(A, tables.spark.createDataFrame([(value,) for value in values], "x INT"))


@pytest.mark.parametrize("header", [TABLE, "-- materialized: incremental\n-- keys: x\n"])
def test_a_first_build_that_fails_leaves_no_table_and_one_that_ends_is_one_commit(
    anywhere: Tables, header: str
) -> None:
    tables = anywhere
    _rows(tables, 0, 1)
    graph = parse(
        {"t.sql": f"{header}-- description: it's a share\n-- column y: of six\nselect x, 6 / x as y from silver.a"}
    )
    for _ in range(2):
        assert [result.status for result in publish(tables, graph)] == ["failed"]
        assert (tables.exists(T), tables.names("gold")) == (False, [])
    _rows(tables, 1)
    assert [(result.status, result.rows) for result in publish(tables, graph)] == [("built", 1)]
    assert len(tables.history(T, 5)) == 1
    assert tables.detail(T)["description"] == "it's a share"
    assert tables.column_comments(T) == {"y": "of six"}
    assert [result.status for result in publish(tables, graph)] == ["unchanged"]
    _rows(tables, 0)
    assert [result.status for result in publish(tables, graph)] == ["failed"]
    assert tables.read(T).collect() == [(1, 6.0)]


def test_a_table_that_becomes_a_view_is_gone_and_a_view_that_becomes_a_table_too(anywhere: Tables) -> None:
    tables = anywhere
    _rows(tables, 1)
    sql = {
        "v.sql": "select x from silver.a",
        "t.sql": "select x from silver.a",
        "below.sql": TABLE + "select x from gold.t",
    }
    for materialized in (TABLE, "", TABLE, "-- materialized: incremental\n-- keys: x\n"):
        results = publish(tables, parse(sql | {"t.sql": materialized + sql["t.sql"]}))
        assert {result.status for result in results} <= {"built", "unchanged"}, results
        stored = ["below", "t"] if materialized else ["below"]
        assert [table.name for table in tables.names("gold")] == stored
    assert results[-1].rows is None or tables.read(TableName("gold", "below")).collect() == [(1,)]


@pytest.mark.parametrize("materialized", [TABLE, ""], ids=["table", "view"])
@pytest.mark.parametrize("by", ["another program", "a clone"])
def test_a_table_that_is_not_ours_is_neither_dropped_nor_replaced(tables: Tables, materialized: str, by: str) -> None:
    _rows(tables, 1)
    if by == "a clone":
        publish(tables, parse({"u.sql": TABLE + "select x from silver.a"}))
        tables.spark.sql(f"CREATE TABLE {tables.lake.sql(T)} SHALLOW CLONE {tables.lake.sql(TableName('gold', 'u'))}")
    else:
        tables.spark.range(1).write.format("delta").save(tables.lake.path(T))
    version = tables.version(T)
    (result,) = publish(tables, parse({"t.sql": materialized + "select x from silver.a"}))
    assert (result.status, result.reason) == (
        "failed",
        "gold.t is a table that Strandline has not made; nothing was written → "
        "rename or drop gold.t, then repeat the command",
    )
    assert tables.version(T) == version
    assert [str(table) for table in orphans(tables, [])] == (["gold.u"] if by == "a clone" else [])


def test_a_view_that_fails_leaves_the_table_that_it_was(tables: Tables) -> None:
    _rows(tables, 1)
    publish(tables, parse({"t.sql": TABLE + "select x from silver.a"}))
    assert [each.status for each in publish(tables, parse({"t.sql": "select y from silver.a"}))] == ["failed"]
    assert tables.read(T).collect() == [(1,)]


@pytest.fixture
def ctx(tables: Tables, tmp_path: Path) -> JobContext:
    (tmp_path / "gold").mkdir()
    settings = Settings(lake=LakeSettings(root=tables.lake.root), gold=GoldSettings(sql_dir=str(tmp_path / "gold")))
    return JobContext(settings=settings, spark=tables.spark, tables=tables)


def test_read_and_sql_give_the_rows_of_the_view_that_a_table_has_become(ctx: JobContext, tmp_path: Path) -> None:
    file = tmp_path / "gold" / "t.sql"
    _rows(ctx.tables, 1)
    file.write_text(TABLE + "select x from silver.a", encoding="utf-8")
    run_gold(ctx)
    file.write_text("select x from silver.a", encoding="utf-8")
    (planned,) = plan(DeltaRsTables(ctx.tables.lake), parse({"t.sql": "select x from silver.a"}))
    assert planned.reason == "each read runs its query; its old table is dropped"
    run_gold(ctx)
    _rows(ctx.tables, 2, 3)
    assert read("gold.t", root=ctx.tables.lake.path(T).removesuffix("/gold/t")).to_pylist() == [{"x": 2}, {"x": 3}]
    file.write_text(TABLE + "select x from silver.a where x > 2", encoding="utf-8")
    run_gold(ctx)
    assert read("gold.t", root=ctx.tables.lake.path(T).removesuffix("/gold/t")).to_pylist() == [{"x": 3}]
    assert list((Path(ctx.tables.lake.path(T)).parent / "_views").iterdir()) == []


def test_a_table_whose_file_is_renamed_is_reported_until_it_is_dropped(ctx: JobContext, tmp_path: Path) -> None:
    file, foreign = tmp_path / "gold" / "t.sql", TableName("gold", "foreign")
    _rows(ctx.tables, 1)
    ctx.spark.range(1).write.format("delta").save(ctx.tables.lake.path(foreign))
    file.write_text(TABLE + "select x from silver.a", encoding="utf-8")
    run_gold(ctx)
    assert gold_orphans(ctx) == []
    with pytest.raises(ConfigurationError, match=r"gold\.t is not a table of Strandline without an SQL file"):
        drop_gold(ctx, ["t"])
    file.rename(file.with_name("other.sql"))
    advice = "no SQL file makes it, so its rows stay those of its last build; strandline gold drop t removes it"
    assert [(each.name, each.status, each.reason) for each in run_gold(ctx)][1:] == [("t", "orphaned", advice)]
    assert [(each.name, each.status) for each in run_gold(ctx, ["other"])] == [("other", "unchanged")]
    without_gold = replace(ctx, settings=ctx.settings.model_copy(update={"gold": GoldSettings()}))
    assert [each.name for each in run_gold(without_gold)] == ["other", "t"]
    with pytest.raises(ConfigurationError, match=r"gold\.foreign is not a table of Strandline"):
        drop_gold(ctx, ["gold.t", "foreign"])
    assert drop_gold(ctx, ["gold.t"]) == [T]
    assert (ctx.tables.names("gold"), gold_orphans(ctx)) == ([foreign, TableName("gold", "other")], [])


def test_every_function_of_this_spark_is_known_to_be_stable_or_not(spark: SparkSession) -> None:
    assert _functions(spark) <= STABLE | UNSTABLE
    assert not STABLE & UNSTABLE


@pytest.mark.long
def test_no_function_whose_description_speaks_of_the_present_or_of_chance_is_stable(spark: SparkSession) -> None:
    words = ("current date", "current timestamp", "current time", "random", "current user", "current database")
    found = [name for name in _functions(spark) & STABLE if any(word in _described(spark, name) for word in words)]
    # three say "the current timestamp" and mean their arguments; unix_timestamp is stable with an argument only
    assert sorted(found) == ["make_timestamp", "make_timestamp_ltz", "try_make_timestamp_ltz", "unix_timestamp"]


def _functions(spark: SparkSession) -> set[str]:
    names = (row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect())
    return {name for name in names if name.isidentifier()}


def _described(spark: SparkSession, name: str) -> str:
    lines = spark.sql(f"DESCRIBE FUNCTION EXTENDED {name}").collect()
    return " ".join(row[0] for row in lines).lower()
