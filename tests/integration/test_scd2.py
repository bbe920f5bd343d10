"""History on a real server: every version is kept, and the history at any time equals `find` at that time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bson
import pytest
from crashing import Crash, CrashingTables
from lakehouse import bronze, documents_in_source, land, pipeline, with_silver
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.operations.cut_listing import list_cuts
from strandline.jobs.operations.sql import run_sql
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.position import BEFORE_ALL, snapshot_position
from strandline.model.table_schemas import HISTORY_BOOKKEEPING
from strandline.model.tables import TableName
from strandline.source.client import operation_time

Db = Database[dict[str, Any]]
Moment = tuple[str, dict[str, bytes]]

_EXACT = {"mode": "change_streams_update_full_with_pre_image", "full_update_type": "post_image"}


def keeping_history(ctx: JobContext, **silver: Any) -> JobContext:
    return with_silver(ctx, history="scd2", **silver)


def history(ctx: JobContext) -> DataFrame:
    return ctx.tables.read(TableName("silver", "a_history"))


def content(ctx: JobContext) -> list[tuple[Any, ...]]:
    columns = [
        name for name in HISTORY_BOOKKEEPING if name not in ("_rescued", "_document")
    ]  # a VARIANT cannot be compared
    return sorted(map(tuple, history(ctx).select(*columns, F.hex("_document")).collect()), key=repr)


def as_of(ctx: JobContext, position: str) -> dict[str, bytes]:
    is_in_force = (
        (F.col("_position") <= position)
        & F.coalesce(F.col("_valid_to_position") > position, F.lit(True))
        & ~F.col("_deleted")
    )
    rows = history(ctx).where(is_in_force).select("_key", "_document").collect()
    assert len({row["_key"] for row in rows}) == len(rows)
    return {row["_key"]: bytes(row["_document"]) for row in rows}


def change_everything(database: Db, mongo: MongoClient[dict[str, Any]]) -> list[Moment]:
    """Change five documents in several steps. Return the position and the result of `find` after each step."""

    def now() -> Moment:
        return snapshot_position(*operation_time(mongo)), documents_in_source(database, "a")

    moments = [now()]
    for number in range(5):
        database.a.update_one({"_id": number}, {"$inc": {"n": 1}, "$push": {"list": number}})
    moments.append(now())
    database.a.update_one({"_id": 0}, {"$set": {"nested.deep": 1}, "$unset": {"list": ""}})
    database.a.update_one({"_id": 0}, {"$set": {"n": 10}})
    database.a.delete_one({"_id": 1})
    moments.append(now())
    with mongo.start_session() as session, session.start_transaction():
        database.a.insert_one({"_id": 1, "again": True}, session=session)
        for step in range(3):
            database.a.update_one({"_id": 2}, {"$set": {"step": step}}, session=session)
        database.a.delete_one({"_id": 3}, session=session)
    moments.append(now())
    database.a.replace_one({"_id": 4}, {"n": "text"})
    return [*moments, now()]


# scenario: B03, B04, D06, D07, I06
@pytest.mark.check
@pytest.mark.parametrize(
    "capture",
    [
        pytest.param({**_EXACT, "snapshot_mode": "no_data"}, id="images"),
        pytest.param({"mode": "change_streams"}, id="patches", marks=pytest.mark.long),
    ],
)
def test_at_any_moment_the_history_shows_what_find_returned_then(
    spark: SparkSession,
    mongo_uri: str,
    mongo: MongoClient[dict[str, Any]],
    database: Db,
    tmp_path: Path,
    capture: dict[str, Any],
) -> None:
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    database.a.insert_many([{"_id": number, "n": number} for number in range(5)])
    ctx = keeping_history(pipeline(spark, mongo_uri, database.name, tmp_path, max_batch_size=4, **capture))
    run_capture(ctx, once=True)
    before = show_offset(ctx).resume_token
    run_silver(ctx)
    moments = change_everything(database, mongo)
    run_capture(ctx, once=True)
    crashing = JobContext(
        ctx.settings, spark, CrashingTables(spark, ctx.tables.lake, {"left": 1, "after": 0}, of="a_history")
    )
    with pytest.raises(Crash):  # silver is complete, its history is not
        run_silver(crashing)
    run_silver(ctx)
    for position, documents in moments:
        assert as_of(ctx, position) == documents
    rows = {key: [bson.decode(bytes(raw)) for raw in found] for key, found in versions(ctx).items()}
    assert [document.get("step") for document in rows["2"]][-3:] == [0, 1, 2]  # one cluster time, three versions
    assert history(ctx).where("NOT _exact").isEmpty()
    in_force = history(ctx).where("_valid_to_position IS NULL")
    assert in_force.count() == 5
    assert [row["_key"] for row in in_force.where("_deleted").collect()] == ["3"]
    assert history(ctx).where(F.col("_position") == BEFORE_ALL).count() == (5 if "full_update_type" in capture else 0)
    if "full_update_type" in capture:
        assert_images_chain(ctx)
    known = content(ctx)
    set_desired_state(ctx, "stopped", by="ops", why="a test")
    alter_offset(ctx, before or "", by="ops", why="replay")
    set_desired_state(ctx, "running", by="ops", why=None)
    assert run_capture(ctx, once=True).events == 14
    run_silver(ctx)
    assert content(ctx) == known
    shown = run_sql(
        ctx, "select _key from silver.a_history where _valid_from <= now() and (_valid_to is null or _valid_to > now())"
    )
    assert shown.count() == 5


def versions(ctx: JobContext) -> dict[str, list[Any]]:
    """Return the documents of all versions by key, oldest first."""
    ordered = history(ctx).where("_document IS NOT NULL").groupBy("_key")
    rows = ordered.agg(F.array_sort(F.collect_list(F.struct("_position", "_document"))).alias("versions")).collect()
    return {row["_key"]: [version["_document"] for version in row["versions"]] for row in rows}


def assert_images_chain(ctx: JobContext) -> None:
    """Assert that every pre-image equals the version before it."""
    ended = {
        (row["_key"], row["_valid_to_position"]): bytes(row["_document"])
        for row in history(ctx).where("NOT _deleted").collect()
    }
    events = (
        bronze(ctx)
        .where("operation_type IN ('update', 'replace', 'delete')")
        .select("key", "position", "envelope")
        .collect()
    )
    assert len(events) == 13
    for row in events:
        assert ended[row["key"], row["position"]] == bson.encode(
            bson.decode(bytes(row["envelope"]))["fullDocumentBeforeChange"]
        )


# scenario: H03, H07; history is switched on in the middle of an incarnation
@pytest.mark.long
def test_a_history_begun_later_is_filled_from_bronze_and_drops_and_renames_end_it(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    plain = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": number} for number in range(3)])
    run_capture(plain, once=True)
    run_silver(plain)
    database.a.update_one({"_id": 0}, {"$set": {"v": 1}})
    database.a.drop()
    database.a.insert_one({"_id": 0, "v": 2})
    database.b.insert_one({"_id": 7, "v": 7})
    run_capture(plain, once=True)
    run_silver(plain)
    ctx = keeping_history(plain, history_collections=[f"{database.name}.a"])
    database.b.update_one({"_id": 7}, {"$set": {"v": 8}})
    database.b.rename("a", dropTarget=True)
    run_capture(ctx, once=True)
    run_silver(ctx)
    rows = history(ctx).orderBy("_key", "_position").select("_key", "_op", "v", F.col("_valid_to").isNull()).collect()
    assert [tuple(row) for row in rows] == [
        *(
            ("0", "r", None, False),
            ("0", "u", 1, False),
            ("0", "d", None, False),
            ("0", "c", 2, False),
            ("0", "d", None, True),
        ),
        *(("1", "r", None, False), ("1", "d", None, True)),
        *(("2", "r", None, False), ("2", "d", None, True)),
        *(("7", "c", 7, False), ("7", "u", 8, True)),
    ]
    assert not ctx.tables.exists(TableName("silver", "b_history"))


# scenario: I01, I05
@pytest.mark.long
def test_a_cut_names_versions_that_belong_together(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[dict[str, Any]], database: Db, tmp_path: Path
) -> None:
    database.a.insert_one({"_id": 0})
    database.b.insert_one({"_id": 0})
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams", max_batch_size=3)
    run_capture(ctx, once=True)
    run_silver(ctx)
    (snapshot,) = list_cuts(ctx, limit=9)
    assert (snapshot["cut"], snapshot["exact"], snapshot["inexact_reasons"]) == (1, False, ["snapshot"])
    for number in range(1, 4):
        with mongo.start_session() as session:
            session.start_transaction()
            database.a.insert_many([{"_id": number * 10 + i} for i in range(3)], session=session)
            database.b.insert_many([{"_id": number * 10 + i} for i in range(3)], session=session)
            end = session.abort_transaction if number == 2 else session.commit_transaction
            end()
    run_capture(ctx, once=True)
    ended = (
        bronze(ctx)
        .where("resume_token IS NOT NULL AND position IS NOT NULL")
        .select("ends_outside_transaction")
        .collect()
    )
    assert [row["ends_outside_transaction"] for row in ended] == [True, True]
    run_silver(ctx)
    cut = list_cuts(ctx, limit=1)[0]
    assert (cut["cut"], cut["exact"]) == (2, True)
    database.a.insert_one({"_id": 99})
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert list_cuts(ctx, limit=1)[0]["tables"]["silver.b"] == cut["tables"]["silver.b"]
    counts = {
        name: ctx.tables.read(TableName("silver", name), version=cut["tables"][f"silver.{name}"]).count()
        for name in "ab"
    }
    assert counts == {"a": 7, "b": 7}
    run_silver(ctx)
    assert len(list_cuts(ctx, limit=9)) == 3


@pytest.mark.long
def test_a_cut_names_the_version_that_maintenance_left(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    for name in "ab":
        database[name].insert_one({"_id": 1})
    land(ctx)
    idle = TableName("silver", "a")
    for number in range(2):
        ctx.tables.set_properties(idle, {"somebody.else": str(number)})
    database.b.insert_one({"_id": 2})
    land(ctx)
    assert list_cuts(ctx, limit=1)[0]["tables"]["silver.a"] == ctx.tables.version(idle), (
        "VACUUM deletes the files of the older version"
    )


@pytest.mark.long
def test_a_cut_names_the_version_that_a_rebuild_left(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    for name in "ab":
        database[name].insert_one({"_id": 1})
    land(with_silver(ctx, compatibility="native"))
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    run_rebuild(with_silver(ctx, compatibility="portable"), "silver.a")
    idle = TableName("silver", "a")
    assert "DROP FEATURE" in {commit.operation for commit in ctx.tables.history(idle)}
    set_desired_state(ctx, "running", by="ops", why="it is rebuilt")
    database.b.insert_one({"_id": 2})
    land(with_silver(ctx, compatibility="native"))
    assert list_cuts(ctx, limit=1)[0]["tables"]["silver.a"] == ctx.tables.version(idle)
