"""Updates that come without their document: what silver folds is what the server holds, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, bronze, pipeline, silver
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset, reset_offset
from strandline.jobs.operations.status import silver_status
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.collection import CollectionRun
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import bronze_table
from strandline.silver.progress_index import ProgressIndex

Db = Database[dict[str, Any]]


def change_everything(database: Db) -> None:
    for number in range(10, 30, 2):
        database.a.update_one({"_id": number}, {"$set": {"nested.deep": number, "list.1": "x"}, "$unset": {"gone": ""}})
        database.a.update_one(
            {"_id": number}, {"$push": {"list": {"$each": [5, 4], "$slice": -3, "$sort": 1}}, "$inc": {"n": 1}}
        )
    database.a.update_one({"_id": 3}, [{"$set": {"sum": {"$size": "$list"}, "gone": "$$REMOVE"}}])
    database.a.replace_one({"_id": 5}, {"new": True})
    database.a.update_one({"_id": 5}, {"$set": {"later": 1.5}})
    database.a.delete_one({"_id": 7})
    database.a.delete_one({"_id": 9})
    database.a.insert_one({"_id": 9, "again": 1})
    database.a.update_one({"_id": 9}, {"$set": {"again": 2}})


# scenario: C06, D06
@pytest.mark.check
def test_patches_are_folded_onto_snapshots_inserts_and_earlier_patches(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    database.a.insert_many([{"_id": n, "n": 0, "gone": "g", "nested": {"a": n}, "list": [3, 1, 2]} for n in range(30)])
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams_with_pre_image")
    run_capture(ctx, once=True)
    run_silver(ctx)
    for round_ in (1, 2):  # the second one patches documents that were folded themselves
        change_everything(database)
        run_capture(ctx, once=True)
        run_silver(ctx)
        assert_equal_to_source(ctx, database, "a")
        patches = bronze(ctx).where("operation_type = 'update' AND document_size IS NULL").count()
        assert patches == (23 if round_ == 1 else 45), "the second round's pipeline changes nothing"
    rows = silver(ctx, "a").selectExpr(
        "count_if(_pending IS NOT NULL)", "count_if(_exact)", "max(sum)", "count_if(_key = '7' AND _deleted)"
    )
    assert rows.first() == (0, 20, 3, 1), "a nested path has two readings before MongoDB 6.1"


def silver_up_to(ctx: JobContext, version: int, collection: str) -> None:
    """A silver run that began when bronze was at that version."""
    progress_index = ProgressIndex.read(ctx.tables, bronze_table("test"))
    through = progress_index.bronze.at(version)
    CollectionRun(ctx, Namespace.parse(collection), BronzeState.read(ctx, progress_index, through)).run()


# scenario: C06, C08, O06: the patch lands before anything that it could be folded onto
@pytest.mark.long
def test_patches_wait_in_silver_for_a_document(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.a.insert_many([{"_id": n, "n": 0, "m": 0} for n in range(5)])
    database.a.update_many({}, {"$set": {"m": 3}})
    ctx = pipeline(
        spark, mongo_uri, database.name, tmp_path, mode="change_streams", snapshot_mode="no_data", max_batch_size=5
    )
    run_capture(ctx, once=True)
    database.a.update_many({"_id": {"$lt": 3}}, {"$inc": {"n": 1}})
    run_capture(ctx, once=True)
    run_silver(ctx)
    waiting = silver(ctx, "a").selectExpr("_key", "size(_pending)", "_document").collect()
    assert sorted(map(tuple, waiting)) == [("0", 1, None), ("1", 1, None), ("2", 1, None)]
    assert [(table.live, table.waiting) for table in silver_status(ctx)] == [(3, 3)]
    database.a.replace_one({"_id": 0}, {"n": 10})
    database.a.update_one({"_id": 0}, {"$inc": {"n": 1}})
    run_capture(ctx, once=True)
    run_silver(ctx)
    found = {row["_key"]: row for row in silver(ctx, "a").selectExpr("_key", "n", "_pending").collect()}
    assert (found["0"]["n"], found["0"]["_pending"]) == (11, None)
    assert len(found["1"]["_pending"]) == 1

    # The offset goes back to before the oldest event of bronze. However little silver reads at a time, it folds no
    # patch onto a document that lacks an update.
    set_desired_state(ctx, "stopped", by="ops", why=None)
    bronze_of = bronze_table("test")
    captured = ctx.tables.version(bronze_of)
    alter_offset(ctx, "oldest", by="ops", why=None)
    set_desired_state(ctx, "running", by="ops", why=None)
    run_capture(ctx, once=True)
    seen = []
    for version in range(captured + 1, ctx.tables.version(bronze_of) + 1):
        silver_up_to(ctx, version, f"{database.name}.a")
        row = silver(ctx, "a").where("_key = '1'").collect()[0].asDict()
        seen.append((row.get("m"), row["n"], len(row["_pending"] or ())))
    assert list(dict.fromkeys(seen)) == [(None, None, 1), (0, 0, 1), (3, 0, 1), (3, 1, 0)]
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")


# promise 3; scenario: C06, P01
@pytest.mark.long
@pytest.mark.parametrize("lost_by", ["a reset", "a filter", "a skipped operation"])
def test_a_patch_waits_where_bronze_may_lack_an_earlier_event(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, lost_by: str
) -> None:
    def ctx(**capture: Any) -> JobContext:
        return pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams", **capture)

    database.a.insert_many([{"_id": 1, "n": 0}, {"_id": 2, "n": 0}])
    run_capture(ctx(), once=True)
    database.a.update_one({"_id": 2}, {"$set": {"n": 5}})
    run_capture(ctx(), once=True)
    leaving_out = {
        "a filter": {"collection_exclude_list": [r".*\.a"]},
        "a skipped operation": {"skipped_operations": ["u"]},
    }
    if lost_by in leaving_out:
        run_capture(ctx(**leaving_out[lost_by]), once=True)
        database.a.update_one({"_id": 1}, {"$set": {"n": 1}})
        run_capture(ctx(**leaving_out[lost_by]), once=True)
    else:
        set_desired_state(ctx(), "stopped", by="ops", why=None)
        database.a.update_one({"_id": 1}, {"$set": {"n": 1}})
        reset_offset(ctx(), by="ops", why=None)
        set_desired_state(ctx(), "running", by="ops", why=None)
    run_capture(ctx(snapshot_mode="no_data"), once=True)
    database.a.update_one({"_id": 1}, {"$set": {"m": 1}})
    run_capture(ctx(snapshot_mode="no_data"), once=True)
    run_silver(ctx())
    rows = silver(ctx(), "a").orderBy("_key").selectExpr("_key", "n", "_pending IS NOT NULL").collect()
    assert [tuple(row) for row in rows] == [("1", 0, True), ("2", 5, False)]
    database.a.replace_one({"_id": 1}, {"n": 2})
    run_capture(ctx(), once=True)
    run_silver(ctx())
    assert_equal_to_source(ctx(), database, "a")


# promise 2; scenario: C06
@pytest.mark.long
def test_patches_of_an_earlier_mode_are_folded_under_every_mode(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.a.insert_one({"_id": 1, "n": 0})
    patches = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams")
    run_capture(patches, once=True)
    database.a.update_one({"_id": 1}, {"$set": {"m": 1}})
    run_capture(patches, once=True)
    lookups = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 2})
    run_capture(lookups, once=True)
    run_silver(lookups)
    assert_equal_to_source(lookups, database, "a")
