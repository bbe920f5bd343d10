"""A silver run beside another silver run or a rebuild, over one table."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, land, pipeline, silver, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.control.cuts import Cut, cuts
from strandline.io.spark.races import OvertakenError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.silver import rebuild
from strandline.jobs.silver import run_silver as silver_job
from strandline.jobs.silver.collection import SilverResult
from strandline.jobs.silver.run_plan import RunPlan
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.silver.shadow_table import Shadow
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.silver.silver_table import SilverTable


def exact_pipeline(spark: SparkSession, uri: str, database: Database[Any], folder: Path, **settings: Any) -> JobContext:
    """A pipeline whose cuts are exact, with the document 1 in silver."""
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    database.a.insert_one({"_id": 1})
    ctx = with_silver(pipeline(spark, uri, database.name, folder, mode="change_streams_with_pre_image"), **settings)
    land(ctx)
    return ctx


# scenario: Q06, E03
@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "target"),
    [
        ("auto", "strandline.jobs.silver.direct_batch.DirectBatch.profile"),
        ("spark", "strandline.jobs.silver.collection.profile_batch"),
    ],
)
def test_a_run_that_is_overtaken_keeps_the_columns_that_the_other_one_made(
    spark: SparkSession,
    mongo_uri: str,
    database: Database[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    target: str,
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), engine=engine)
    database.a.insert_one({"_id": 1})
    land(ctx)
    database.a.insert_one({"_id": 2, "own": 1})
    run_capture(ctx, once=True)

    profile = pkgutil.resolve_name(target)

    def overtaken(*args: Any, **options: Any) -> Any:
        """Let another run capture and merge more changes while this run profiles its batch."""
        monkeypatch.setattr(target, profile)
        database.a.insert_one({"_id": 3, "theirs": "text"})
        land(ctx)
        return profile(*args, **options)

    monkeypatch.setattr(target, overtaken)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    shape = SilverTable(ctx.tables, TableName("silver", "a")).open(f"{database.name}.a", ctx.settings.source.name).shape
    assert {"own", "theirs"} <= set(shape.fields)
    assert [tuple(row) for row in silver(ctx, "a").select("own", "theirs").orderBy("_key").collect()] == [
        (None, None),
        (1, None),
        (None, "text"),
    ]
    assert run_silver(ctx) == []


def rows_of(ctx: JobContext, cut: Cut) -> dict[str, list[tuple[str, bool]]]:
    """Key of each row that the tables of a cut hold, and True if the row is above the cut's position."""
    found = {}
    for name, version in cut.tables.items():
        rows = ctx.tables.read(TableName("silver", name.removeprefix("silver.")), version=version)
        found[name] = sorted(map(tuple, rows.select("_key", F.col("_position") > cut.position).collect()))
    return found


# promise 2
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_a_cut_names_no_row_that_another_run_merges_before_it_is_published(
    spark: SparkSession, mongo_uri: str, database: Database[Any], tmp_path: Path, engine: str
) -> None:
    ctx = exact_pipeline(spark, mongo_uri, database, tmp_path, engine=engine, history="scd2")
    database.a.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    through = ctx.tables.version(bronze_table("test"))

    def another_run(_: SilverResult) -> None:
        database.a.insert_one({"_id": 3})
        run_capture(ctx, once=True)
        run_silver(ctx, collections=[f"{database.name}.a"])

    run_silver(ctx, report=another_run)
    (cut,) = cuts(ctx.tables, limit=1)
    assert (cut.exact, cut.bronze_version) == (True, through)
    present = [("1", False), ("2", False)]
    assert rows_of(ctx, cut) == {"silver.a": present, "silver.a_history": present}
    assert_equal_to_source(ctx, database, "a")
    run_silver(ctx)
    (cut,) = cuts(ctx.tables, limit=1)
    assert cut.exact
    assert rows_of(ctx, cut)["silver.a"] == [*present, ("3", False)]


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_a_cut_of_a_table_into_which_another_run_has_merged_first_is_inexact(
    spark: SparkSession,
    mongo_uri: str,
    database: Database[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    ctx = exact_pipeline(spark, mongo_uri, database, tmp_path, engine=engine)
    database.a.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    run_plan = silver_job.plan_run

    def after_another_run(*arguments: Any) -> RunPlan:
        monkeypatch.setattr(silver_job, "plan_run", run_plan)
        database.a.insert_one({"_id": 3})
        run_capture(ctx, once=True)
        run_silver(ctx, collections=[f"{database.name}.a"])
        return run_plan(*arguments)

    monkeypatch.setattr(silver_job, "plan_run", after_another_run)
    run_silver(ctx)
    (cut,) = cuts(ctx.tables, limit=1)
    assert cut.inexact_reasons == ("ahead",)
    assert rows_of(ctx, cut) == {"silver.a": [("1", False), ("2", False), ("3", True)]}
    run_silver(ctx)
    (cut,) = cuts(ctx.tables, limit=1)
    assert cut.exact
    assert rows_of(ctx, cut) == {"silver.a": [("1", False), ("2", False), ("3", False)]}


# scenario: S07
@pytest.mark.long
def test_a_rebuild_into_another_compatibility_replaces_nothing_that_a_silver_run_has_changed_meanwhile(
    spark: SparkSession, mongo_uri: str, database: Database[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), compatibility="portable")
    database.a.insert_one({"_id": 1})
    land(ctx)
    database.a.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    require_all_keys = rebuild.require_all_keys

    def beside_silver(shadow: Shadow, table: TableName) -> None:
        """Let a silver run that was still at work end before the swap."""
        run_silver(ctx)
        require_all_keys(shadow, table)

    monkeypatch.setattr(rebuild, "require_all_keys", beside_silver)
    with pytest.raises(OvertakenError, match=r"silver\.a was changed while it was rebuilt.*nothing was replaced"):
        rebuild.run_rebuild(with_silver(ctx, compatibility="native"), "silver.a")
    assert dict(silver(ctx, "a").dtypes)["_rescued"] == "string", "the table is still portable"
    assert_equal_to_source(ctx, database, "a")


# scenario: S07
@pytest.mark.long
def test_rows_that_a_rebuild_of_a_part_takes_back_are_merged_again(
    spark: SparkSession, mongo_uri: str, database: Database[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1}])
    land(ctx)
    database.a.update_many({}, {"$set": {"n": 2}})
    run_capture(ctx, once=True)
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    require_unchanged = rebuild._require_unchanged

    def before_silver(*arguments: Any) -> None:
        """Let a silver run that was still at work commit between the check and the MERGE."""
        require_unchanged(*arguments)
        run_silver(ctx)

    monkeypatch.setattr(rebuild, "_require_unchanged", before_silver)
    rebuild.run_rebuild(ctx, "silver.a", keys=["1"])
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")


# scenario: S07
def test_a_rebuild_swaps_although_maintenance_has_compacted_the_table_meanwhile(
    spark: SparkSession, mongo_uri: str, database: Database[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    for number in range(2):  # two files
        database.a.insert_one({"_id": number})
        land(ctx)
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    require_all_keys, table = rebuild.require_all_keys, TableName("silver", "a")

    def beside_maintenance(shadow: Shadow, name: TableName) -> None:
        spark.sql(f"OPTIMIZE {ctx.tables.lake.sql(table)}")
        assert next(iter(ctx.tables.commits_after(table, -1))).operation == "OPTIMIZE"
        require_all_keys(shadow, name)

    monkeypatch.setattr(rebuild, "require_all_keys", beside_maintenance)
    assert rebuild.run_rebuild(ctx, "silver.a").swapped
    assert_equal_to_source(ctx, database, "a")
