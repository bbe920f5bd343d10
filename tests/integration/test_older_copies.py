"""An older copy of bronze is put back, or a commit is lost: a version number then stands for other rows than before."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from lake_place import PLACE, files_of
from lakehouse import assert_equal_to_source, land, pipeline, purge, silver, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.control.cuts import Cut, cuts
from strandline.errors import ConfigurationError, RetriableError
from strandline.io.delta_log.table_folder import commit_name
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import SilverMemory, run_silver
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
pytestmark = pytest.mark.skipif(PLACE == "hdfs", reason="the test copies files of the lake")
BRONZE, THINGS, HISTORY = bronze_table("test"), TableName("silver", "a"), TableName("silver", "a_history")


class Lake:
    """A lake whose bronze table can be copied and put back.

    Silver has merged the documents 0 to 4 of the copy, and 100 and 101, which the copy lacks.
    """

    def __init__(self, ctx: JobContext, database: Db, root: Path) -> None:
        self.ctx, self._database, self._root = ctx, database, files_of(root)
        database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
        database.a.insert_many([{"_id": number, "n": 0} for number in range(5)])
        land(ctx)
        shutil.copytree(self._root / "bronze", self._root / "copy")
        self._insert(100)
        self._insert(101)
        run_silver(ctx)
        self.merged_through = ctx.tables.version(BRONZE)

    def put_back(self, *, passing: bool) -> None:
        """Put the copy back, change the source, and capture.

        Args:
            passing: Capture until bronze has more versions than silver had read of it.
        """
        shutil.rmtree(self._root / "bronze")
        shutil.copytree(self._root / "copy", self._root / "bronze")
        self._database.a.update_one({"_id": 1}, {"$set": {"n": 1}})
        self._database.a.delete_one({"_id": 2})
        self._insert(200)
        assert self.ctx.tables.version(BRONZE) <= self.merged_through
        while passing and self.ctx.tables.version(BRONZE) <= self.merged_through:
            self._insert(300 + self.ctx.tables.version(BRONZE))

    def _insert(self, number: int) -> None:
        self._database.a.insert_one({"_id": number, "n": 0})
        run_capture(self.ctx, once=True)


@pytest.fixture
def ctx(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> JobContext:
    exact = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams_with_pre_image")
    return with_silver(exact, engine="auto")


@pytest.fixture
def lake(ctx: JobContext, database: Db, tmp_path: Path) -> Lake:
    return Lake(ctx, database, tmp_path)


def assert_cut_is_exact(ctx: JobContext) -> Cut:
    """The newest cut is exact, and its versions hold no row above its position."""
    (cut,) = cuts(ctx.tables, limit=1)
    assert cut.exact
    assert cut.bronze_version == ctx.tables.version(BRONZE)
    for name, version in cut.tables.items():
        rows = ctx.tables.read(TableName("silver", name.removeprefix("silver.")), version=version)
        assert rows.where(F.col("_position") > cut.position).isEmpty()
    return cut


# promise 2
@pytest.mark.parametrize(
    ("engine", "passing"),
    [
        pytest.param("auto", True, id="small batches, above the old version"),
        pytest.param("spark", False, id="Spark, below it"),
        pytest.param("auto", False, id="small batches, below it", marks=pytest.mark.long),
        pytest.param("spark", True, id="Spark, above it", marks=pytest.mark.long),
    ],
)
def test_an_older_copy_of_bronze_is_read_anew(
    ctx: JobContext, database: Db, tmp_path: Path, engine: str, passing: bool
) -> None:
    chosen = with_silver(ctx, engine=engine, history="scd2")
    lake = Lake(chosen, database, tmp_path)
    lake.put_back(passing=passing)
    run_silver(chosen)
    assert_equal_to_source(chosen, database, "a")
    current = chosen.tables.read(HISTORY).where("_valid_to IS NULL AND NOT _deleted").select("_key")
    assert {row[0] for row in current.collect()} == {str(found["_id"]) for found in database.a.find()}
    assert set(assert_cut_is_exact(chosen).tables) == {str(THINGS), str(HISTORY)}
    assert run_silver(chosen) == []
    database.a.insert_one({"_id": 900, "n": 9})
    land(chosen)
    assert_equal_to_source(chosen, database, "a")
    assert_cut_is_exact(chosen)


def test_a_process_that_goes_on_reads_an_older_copy_anew(
    lake: Lake, database: Db, caplog: pytest.LogCaptureFixture
) -> None:
    memory = SilverMemory()
    run_silver(lake.ctx, memory=memory)
    lake.put_back(passing=False)
    while lake.ctx.tables.version(BRONZE) < lake.merged_through:
        database.client[f"{database.name}_other"].a.insert_one({})
        run_capture(lake.ctx, once=True)
    assert lake.ctx.tables.version(BRONZE) == lake.merged_through
    with caplog.at_level(logging.WARNING, "strandline.silver"):
        run_silver(lake.ctx, memory=memory)
    assert [record.getMessage() for record in caplog.records if "read anew" in record.getMessage()] == [
        "bronze.test no longer has the commit up to which silver has merged: its log was cleaned up since (Delta keeps"
        " 30 days), or an older copy of its folder was put back. All of it is read anew"
    ]
    assert_equal_to_source(lake.ctx, database, "a")


def test_a_rebuild_and_a_comparison_wait_for_silver_after_an_older_copy(lake: Lake, database: Db) -> None:
    lake.put_back(passing=True)
    with pytest.raises(RetriableError, match="silver lacks what bronze has"):
        run_reconcile(lake.ctx, wait_seconds=0)
    set_desired_state(lake.ctx, "stopped", by="ops", why="a rebuild")
    with pytest.raises(ConfigurationError, match=r"silver\.a was not built from the rows that bronze\.test holds now"):
        run_rebuild(lake.ctx, "silver.a")
    run_silver(lake.ctx)
    assert run_rebuild(lake.ctx, "silver.a").different == 0
    assert run_silver(lake.ctx) == []
    set_desired_state(lake.ctx, "running", by="ops", why="rebuilt")
    land(lake.ctx)
    assert_equal_to_source(lake.ctx, database, "a")


def test_a_purge_keeps_out_no_row_that_silver_has_not_read_from_an_older_copy(lake: Lake, database: Db) -> None:
    database.a.delete_one({"_id": 3})
    land(lake.ctx)
    lake.put_back(passing=True)
    purge(lake.ctx)
    purge(lake.ctx)
    run_silver(lake.ctx)
    assert_equal_to_source(lake.ctx, database, "a")


def test_a_cut_is_inexact_while_silver_holds_rows_that_bronze_lacks(lake: Lake, database: Db, tmp_path: Path) -> None:
    database.a.insert_one({"_id": 102, "n": 0})
    run_capture(lake.ctx, once=True)
    run_silver(lake.ctx, collections=[f"{database.name}.a"])  # without a cut
    root = files_of(tmp_path)
    shutil.rmtree(root / "bronze")
    shutil.copytree(root / "copy", root / "bronze")
    run_silver(lake.ctx)
    (cut,) = cuts(lake.ctx.tables, limit=1)
    assert cut.inexact_reasons == ("ahead",)
    run_capture(lake.ctx, once=True)
    run_silver(lake.ctx)
    assert_cut_is_exact(lake.ctx)
    assert_equal_to_source(lake.ctx, database, "a")


def test_an_older_copy_of_a_silver_table_with_as_many_commits_as_before_is_merged_again(
    lake: Lake, database: Db, tmp_path: Path
) -> None:
    table = files_of(tmp_path) / "silver" / "a"
    shutil.copytree(table, tmp_path / "copy of silver")
    before = lake.ctx.tables.version(THINGS)
    database.a.insert_one({"_id": 500})
    land(lake.ctx)
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "copy of silver", table)
    for number in range(lake.ctx.tables.version(THINGS), before + 1):
        lake.ctx.tables.set_properties(THINGS, {"some.property": str(number)})
    assert silver(lake.ctx, "a").where("_key = '500'").isEmpty()
    run_silver(lake.ctx)
    assert_equal_to_source(lake.ctx, database, "a")


# promise 3
def test_a_commit_in_the_place_of_a_lost_one_is_read(lake: Lake, database: Db, tmp_path: Path) -> None:
    version = lake.ctx.tables.version(BRONZE)
    (files_of(tmp_path) / "bronze" / BRONZE.name / commit_name(version)).unlink()
    database.a.insert_one({"_id": 103, "n": 0})
    run_capture(lake.ctx, once=True)
    assert lake.ctx.tables.version(BRONZE) == version
    run_silver(lake.ctx)
    assert_equal_to_source(lake.ctx, database, "a")
    assert_cut_is_exact(lake.ctx)
