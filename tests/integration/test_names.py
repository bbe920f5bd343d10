"""Drops, renames and what else becomes of a name: after each of them silver equals the source."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, land, pipeline, silver, with_silver
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.report import list_snapshots
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
NAMES = ("a", "b", "c", "d", "g")


def fill(database: Db, *names: str, life: int) -> None:
    for name in names:
        database[name].insert_many([{"_id": n, "life": life, "name": name} for n in range(life, life + 4)])


def change_names(database: Db, life: int) -> None:
    database.a.drop()
    fill(database, "a", life=life)
    database.b.update_one({"_id": life}, {"$set": {"before": "rename"}})
    database.b.rename("c", dropTarget=True)
    database.c.update_one({"_id": life}, {"$set": {"after": "rename"}})
    fill(database, "b", life=life)
    database.d.aggregate([{"$match": {"_id": {"$gt": life}}}, {"$set": {"out": life}}, {"$out": "d"}])


def assert_every_name_equals_the_source(ctx: JobContext, database: Db) -> None:
    tables = {table.name for table in ctx.tables.names("silver")}
    assert tables <= set(NAMES), "no table for what the server makes in passing"
    assert_equal_to_source(ctx, database, *tables)
    assert set(database.list_collection_names()) <= tables


# scenario: H03, H04, H05, H07, H09, D06, A12
def test_after_drops_renames_and_new_collections_silver_equals_the_source(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[dict[str, Any]], database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_max_threads=1)
    fill(database, *NAMES, life=0)
    ended = threading.Event()
    ended.set()
    run_capture(ctx, stop=ended)  # the snapshot has hardly begun: its chunks must find what was renamed
    change_names(database, 1)
    database.command("convertToCapped", "g", size=100_000)
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_every_name_equals_the_source(ctx, database)

    stop = threading.Event()
    capture = threading.Thread(target=run_capture, args=(ctx,), kwargs={"stop": stop})
    capture.start()
    try:
        change_names(database, 2)
        run_silver(ctx)
        mongo.drop_database(database.name)
        fill(database, "a", "b", life=3)
        database.a.rename("g")
    finally:
        stop.set()
        capture.join()
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_every_name_equals_the_source(ctx, database)
    assert_streamed_exactly_once(ctx)


# scenario: H01, H07: the stream of one collection shows no document of what $out puts in its place
@pytest.mark.long
def test_a_collection_that_is_replaced_unseen_is_read_again_and_its_old_rows_are_archived(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    one = pipeline(spark, mongo_uri, database.name, tmp_path, scope="collection", target=f"{database.name}.a")
    ctx = with_silver(one, on_drop="archive")
    fill(database, "a", life=0)
    run_capture(ctx, once=True)
    run_silver(ctx)
    database.other.insert_many([{"_id": n, "from": "other"} for n in range(3, 8)])
    database.other.aggregate([{"$out": "a"}])
    database.a.insert_one({"_id": "later"})
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert bronze(ctx).where("op = 'r' AND key = '7'").count() == 1
    assert_equal_to_source(ctx, database, "a")
    (archive,) = [table for table in ctx.tables.names("silver") if table != TableName("silver", "a")]
    assert archive.name.startswith("a_dropped_")
    kept = ctx.tables.read(archive).selectExpr("_id", "life", "_deleted").collect()
    assert sorted(map(tuple, kept)) == [(n, 0, False) for n in range(4)]

    database.a.drop()
    run_capture(ctx, once=True)
    run_silver(ctx)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert len(ctx.tables.names("silver")) == 3


# scenario: N04, H07
@pytest.mark.long
def test_a_collection_renamed_during_a_pause_is_read_after_it(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    captured = [f"{database.name}\\.{name}" for name in "ac"]
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_mode="no_data", collection_include_list=captured)
    fill(database, "a", "b", life=0)
    run_capture(ctx, once=True)
    send_signal(ctx, "execute-snapshot", {"data-collections": captured}, by="ops")
    send_signal(ctx, "pause-snapshot", {}, by="ops")
    assert run_capture(ctx, once=True).documents == 0
    database.b.rename("c")
    for _ in range(2):  # in the run that it comes in, and after a restart
        assert run_capture(ctx, once=True).documents == 0
        assert [state.state for state in list_snapshots(ctx)] == ["paused", "replaced"]
    send_signal(ctx, "resume-snapshot", {}, by="ops")
    assert run_capture(ctx, once=True).documents == 8
    assert [state.state for state in list_snapshots(ctx)] == ["completed", "replaced"]
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "c")


# scenario: N04, H07, A17
@pytest.mark.long
def test_a_rename_during_a_snapshot_does_not_hide_what_was_deleted_unseen(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    every = [f"{database.name}\\.{name}" for name in "acg"]
    fill(database, "a", "b", life=0)
    land(pipeline(spark, mongo_uri, database.name, tmp_path, collection_include_list=every))
    without = pipeline(spark, mongo_uri, database.name, tmp_path, collection_include_list=every[1:])
    run_capture(without, once=True)
    database.a.delete_one({"_id": 1})
    fill(database, "g", life=0)  # the stream goes on behind the delete
    run_capture(without, once=True)
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_mode="no_data", collection_include_list=every)
    send_signal(ctx, "execute-snapshot", {"data-collections": every[:1]}, by="ops")
    send_signal(ctx, "pause-snapshot", {}, by="ops")
    assert run_capture(ctx, once=True).documents == 0
    database.b.rename("c")
    run_capture(ctx, once=True)
    send_signal(ctx, "resume-snapshot", {}, by="ops")
    assert run_capture(ctx, once=True).documents == 3 + 4
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "c", "g")


@pytest.mark.long
def test_a_drop_without_other_changes_merges_no_row(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """A batch without changes has no keys either, so that its MERGE would look at all those of the table."""
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), on_drop="soft_delete", deletes="hard")
    fill(database, "a", "b", life=0)
    land(ctx)
    table, other = TableName("silver", "a"), TableName("silver", "b")
    before, idle = ctx.tables.version(table), ctx.tables.version(other)
    database.a.drop()
    land(ctx)
    done = [commit.operation for commit in ctx.tables.history(table, ctx.tables.version(table) - before)]
    assert done == ["SET TBLPROPERTIES", "UPDATE"]
    assert silver(ctx, "a").where("_deleted AND name IS NULL AND _document IS NULL").count() == 4
    assert ctx.tables.version(other) == idle
