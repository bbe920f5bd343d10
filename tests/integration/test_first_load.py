"""The first rows of a silver table: written by threads of this process, they equal what Spark writes."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import bson
import pytest
from lake_place import PLACE
from lakehouse import assert_equal_to_source, documents_in_silver, pipeline, silver, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.io.delta_log import mergeable_table
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext, tables_of
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.silver import bronze_rows
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
pytestmark = pytest.mark.skipif(PLACE != "folder", reason="the lake is copied, as a folder of this machine")
_TABLE = TableName("silver", "a")
_VALUES = (1, 2**40, 1.5, "text", None, [1, {"b": "c"}], {"d": {"e": 1}}, bson.Decimal128("0.50"), b"bytes", [])


def engines(ctx: JobContext) -> list[str]:
    """Writer and operation of each commit that has new rows, oldest first."""
    found = ctx.tables.commits_between(_TABLE, -1, ctx.tables.version(_TABLE))
    assert found is not None
    return [(one.engine or "").partition("/")[0] for one in reversed(found) if one.operation == "MERGE"]


def feed(ctx: JobContext) -> list[tuple[Any, ...]]:
    """Rows of the change feed, sorted."""
    rows = ctx.spark.read.format("delta").options(readChangeFeed="true", startingVersion=0)
    changes = rows.load(ctx.tables.lake.path(_TABLE)).select("_change_type", "_key", "_position", "_rescued")
    return sorted(map(tuple, changes.collect()))


def rows_of(ctx: JobContext) -> list[str]:
    """Rows of the table, but for the version of bronze that each was merged at."""
    columns = sorted({*silver(ctx, "a").columns} - {"_bronze_version"})
    return sorted(map(str, silver(ctx, "a").select(*columns).collect()))


def copied(ctx: JobContext, root: Path) -> JobContext:
    """The same pipeline over a copy of its lake, in which Spark writes silver."""
    shutil.copytree(ctx.tables.lake.root or "", root)
    lake = ctx.settings.lake.model_copy(update={"root": str(root)})
    settings = ctx.settings.model_copy(update={"lake": lake})
    return with_silver(
        replace(ctx, settings=settings, tables=tables_of(ctx.spark, settings.lake_location, settings)), engine="spark"
    )


def folder_of(ctx: JobContext, schema: str) -> Path:
    return Path(ctx.tables.lake.root or "") / schema


@pytest.fixture
def ctx(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> JobContext:
    return with_silver(pipeline(spark, mongo_uri, database.name, tmp_path / "lake"), engine="auto")


# promise 2
@pytest.mark.check
def test_a_snapshot_and_later_changes_give_the_rows_and_the_feed_that_spark_writes(
    ctx: JobContext, database: Db, tmp_path: Path
) -> None:
    chance = random.Random(5)
    database.a.insert_many(
        [
            {"_id": number, "n": number, "v": chance.choice(_VALUES), "w": chance.choice(_VALUES)}
            for number in range(300)
        ]
    )
    run_capture(ctx, once=True)
    for number in chance.sample(range(320), 60):
        database.a.replace_one({"_id": number}, {"n": -number, "v": chance.choice(_VALUES)}, upsert=True)
    database.a.delete_many({"_id": {"$in": chance.sample(range(320), 30)}})
    run_capture(ctx, once=True)
    by_spark = copied(ctx, tmp_path / "copy")
    for each in (ctx, by_spark):
        run_silver(each)
        assert_equal_to_source(each, database, "a")
    assert engines(ctx) == ["strandline"]
    assert engines(by_spark) == ["Apache-Spark"]
    columns = sorted({*silver(by_spark, "a").columns} - {"_bronze_version"})  # Spark reads a new table at one version
    assert {*silver(ctx, "a").columns} == {*columns, "_bronze_version"}
    one, other = (silver(each, "a").select(*columns) for each in (ctx, by_spark))
    assert one.exceptAll(other).collect() == other.exceptAll(one).collect() == []
    assert feed(ctx) == feed(by_spark)


# promise 2
def test_batches_of_any_mixture_give_the_rows_and_the_feed_that_spark_writes(
    ctx: JobContext, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is merged before the next one is captured. None is small: only keys that the table has are merged."""
    monkeypatch.setattr(bronze_rows, "_FEW_BYTES", 0)
    monkeypatch.setattr(mergeable_table, "GROUP_BYTES", 1)
    chance = random.Random(6)
    database.a.insert_many([{"_id": number, "n": number, "v": chance.choice(_VALUES)} for number in range(100)])
    run_capture(ctx, once=True)
    run_silver(ctx)
    by_spark = copied(ctx, tmp_path / "copy")
    for batch in range(4):
        for number in chance.sample(range(60 * (batch + 2)), 50):
            database.a.replace_one({"_id": number}, {"n": -number, "v": chance.choice(_VALUES)}, upsert=True)
        database.a.update_many({"n": {"$lt": -10 * batch}}, {"$set": {f"new{batch}": batch}})
        database.a.delete_many({"_id": {"$in": chance.sample(range(200), 20)}})
        run_capture(ctx, once=True)
        shutil.copytree(folder_of(ctx, "bronze"), folder_of(by_spark, "bronze"), dirs_exist_ok=True)
        for each in (ctx, by_spark):
            run_silver(each)
            assert_equal_to_source(each, database, "a")
    assert "Apache-Spark" not in engines(ctx)
    assert engines(by_spark).count("Apache-Spark") >= 4
    columns = sorted({*silver(by_spark, "a").columns})
    one, other = (silver(each, "a").select(*columns) for each in (ctx, by_spark))
    assert one.exceptAll(other).collect() == other.exceptAll(one).collect() == []
    assert feed(ctx) == feed(by_spark)


# promise 2; scenario: S02
def test_a_rebuild_by_each_engine_gives_the_rows_of_silver(
    ctx: JobContext, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bronze is compacted and its first commits are gone: only the files of its newest version tell all rows."""
    monkeypatch.setattr(bronze_rows, "_FEW_BYTES", 0)
    chance = random.Random(9)
    database.a.insert_many([{"_id": number, "v": chance.choice(_VALUES)} for number in range(100)])
    for batch in range(2):
        run_capture(ctx, once=True)
        for number in chance.sample(range(140), 30):
            database.a.update_one({"_id": number}, {"$set": {f"new{batch}": chance.choice(_VALUES)}}, upsert=True)
        database.a.delete_many({"_id": {"$in": chance.sample(range(140), 10)}})
    run_capture(ctx, once=True)
    run_silver(ctx)
    table = ctx.tables.lake.sql(bronze_table("test"))
    ctx.spark.sql(f"OPTIMIZE {table}")
    with monkeypatch.context() as patched:
        patched.setattr(bronze_rows, "appended_files", lambda *_: None)
        set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
        by_spark = copied(ctx, tmp_path / "copy")
        before = rows_of(ctx)
        for each, engine in ((ctx, "delta-rs"), (by_spark, "Spark")):
            version = each.tables.version(_TABLE)
            result = run_rebuild(each, "silver.a")
            assert (result.engine, result.missing, result.extra, result.different) == (engine, 0, 0, 0)
            assert rows_of(each) == before
            assert each.tables.version(_TABLE) == version + 2
            assert_equal_to_source(each, database, "a")
    assert ctx.tables.read(_TABLE, version=version).count() == len(before)
    set_desired_state(ctx, "running", by="ops", why=None)
    assert run_silver(ctx) == []
    database.a.insert_one({"_id": 1_000, "v": 2})
    run_capture(ctx, once=True)
    assert [result.inserted for result in run_silver(ctx)] == [1]
    assert_equal_to_source(ctx, database, "a")


# promise 3
def test_a_load_that_ends_before_its_progress_is_stored_is_merged_and_not_repeated(
    ctx: JobContext, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.a.insert_many([{"_id": number} for number in range(5)])
    run_capture(ctx, once=True)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DeltaRsTables, "set_properties", killed)
        with pytest.raises(KeyboardInterrupt):
            run_silver(ctx)
    assert len(documents_in_silver(ctx, "a")) == 5
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert engines(ctx) == ["strandline"], "the MERGE has changed nothing"
    assert len(feed(ctx)) == 5


def test_a_collection_that_was_dropped_and_created_again_is_merged_by_spark(ctx: JobContext, database: Db) -> None:
    run_capture(ctx, once=True)
    database.a.insert_many([{"_id": number} for number in range(5)])
    database.a.drop()
    database.a.insert_one({"_id": 2, "n": 1})
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert documents_in_silver(ctx, "a") == {"2": bson.encode({"_id": 2, "n": 1})}
    assert engines(ctx)[0] == "Apache-Spark"


def test_many_collections_each_read_their_own_rows(ctx: JobContext, database: Db) -> None:
    names = [f"c{number}" for number in range(6)]
    for number, name in enumerate(names):
        database[name].insert_many([{"_id": key, "of": name} for key in range(number + 1)])
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, *names)
