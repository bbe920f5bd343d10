"""Compaction of bronze: old events go, and every reader finds what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, bronze, compact, land, pipeline, purge, silver, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.offsets.show_offset import offset_history
from strandline.jobs.restore.run_restore import RestoreResult, run_restore
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.snapshot.report import verify_snapshot
from strandline.model.horizon import Horizon
from strandline.model.position import cluster_time_of
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
BRONZE = bronze_table("test")
EVENTS = "op IN ('c', 'u', 'd', 'r')"


def assert_rebuilt_equal(ctx: JobContext, *names: str) -> None:
    for name in names:
        result = run_rebuild(ctx, f"silver.{name}", dry_run=True)
        assert (result.missing, result.extra, result.different) == (0, 0, 0), name


@pytest.mark.parametrize(
    ("engine", "mode"),
    [
        ("native", "change_streams"),
        ("spark", "change_streams_update_full"),
        # why long: the other halves of both
        pytest.param("native", "change_streams_update_full", marks=pytest.mark.long),
        pytest.param("spark", "change_streams", marks=pytest.mark.long),
    ],
)
def test_of_each_document_its_newest_state_stays_and_a_rebuild_equals_silver(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, engine: str, mode: str
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path, engine=engine, mode=mode), history="scd2")
    database.a.insert_many([{"_id": number, "n": 0} for number in range(6)])
    land(ctx)
    for _ in range(3):
        database.a.update_many({}, {"$inc": {"n": 1}})
        database.a.replace_one({"_id": 1}, {"n": 10})
        land(ctx)
    database.a.delete_many({"_id": {"$gte": 4}})
    database.b.insert_one({"_id": "x"})
    database.b.drop()
    database.b.insert_one({"_id": "y"})
    database.c.insert_one({"_id": 1})
    database.c.rename("d")
    land(ctx)
    versions = ctx.tables.read(TableName("silver", "a_history")).count()
    database.a.insert_one({"_id": "last"})
    land(ctx)
    before, events = bronze(ctx).count(), bronze(ctx).where(EVENTS).count()

    counted = compact(ctx, dry_run=True)
    assert bronze(ctx).count() == before
    compacted = compact(ctx)
    assert compacted == counted
    assert bronze(ctx).count() == before - compacted.rows
    removed = events - bronze(ctx).where(EVENTS).count()
    assert removed == (6 if mode == "change_streams" else 20), "an update without its document stays"
    assert bronze(ctx).where("collection = 'a' AND key = '1'").count() <= 2, "its last replacement, and a patch"
    assert_rebuilt_equal(ctx, "a", "b", "d")

    database.a.update_many({}, {"$inc": {"n": 1}})
    database.d.insert_one({"_id": 2})
    land(ctx)
    assert_equal_to_source(ctx, database, "a", "b", "d")
    assert ctx.tables.read(TableName("silver", "a_history")).count() == versions + 1 + 5
    database.a.insert_one({"_id": "newest"})
    land(ctx)
    events = bronze(ctx).where(EVENTS).count()
    compact(ctx)
    assert events - bronze(ctx).where(EVENTS).count() == (0 if mode == "change_streams" else 5)
    assert_rebuilt_equal(ctx, "a", "b", "d")


def test_purged_deletions_go_with_all_events_of_their_documents(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": number} for number in range(5)])
    land(ctx)
    database.a.delete_many({"_id": {"$gt": 0}})
    database.a.insert_one({"_id": "last"})
    land(ctx)
    purge(ctx)
    assert purge(ctx) == 4
    compact(ctx)
    kept = {row["key"] for row in bronze(ctx).where(EVENTS).collect()}
    assert kept == {"0", '"last"'}
    assert_rebuilt_equal(ctx, "a")
    assert silver(ctx, "a").count() == 2


def restore_at(ctx: JobContext, at: tuple[int, int], folder: Path, *, allow_inexact: bool = False) -> RestoreResult:
    return run_restore(ctx, as_of=f"{at[0]},{at[1]}", collections=[r".*\.a"], to=folder, allow_inexact=allow_inexact)


def test_an_offset_a_check_and_a_restore_that_need_older_events_are_refused(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    land(ctx)
    begin = offset_history(ctx, 1)[0].resume_token
    database.a.update_one({"_id": 1}, {"$set": {"n": 0}})
    land(ctx)
    (first,) = bronze(ctx).where("op = 'u'").select("position").collect()[0]
    database.a.update_one({"_id": 1}, {"$set": {"n": 1}})
    land(ctx)
    database.a.insert_one({"_id": 2})
    land(ctx)
    compact(ctx)
    assert Horizon.of(ctx.tables.properties(BRONZE)) is not None
    set_desired_state(ctx, "stopped", by="ops", why="a test")
    with pytest.raises(ConfigurationError, match="up to which bronze was compacted"):
        alter_offset(ctx, str(begin), by="ops", why=None)
    with pytest.raises(ConfigurationError, match="the snapshot is older"):
        verify_snapshot(ctx)
    old, now = cluster_time_of(first), ctx.tables.query(Query(BRONZE).aggregate(at=("max", "last_event")))[0]["at"]
    with pytest.raises(ConfigurationError, match=r"bronze was compacted up to .*, and no history tells"):
        restore_at(ctx, old, tmp_path / "old")
    restored = restore_at(ctx, cluster_time_of(now), tmp_path / "now", allow_inexact=True)  # a lookup
    assert [(one.documents, one.origin) for one in restored.collections] == [(2, "bronze")]
