"""Changes that bronze holds in part, or not at all: silver waits or marks the row inexact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bson
import pytest
from lakehouse import assert_equal_to_source, bronze, land, pipeline, silver, with_silver
from pymongo.database import Database
from pyspark.sql import DataFrame, SparkSession

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.operations.cut_listing import list_cuts
from strandline.jobs.operations.dead_letter_replay import replay
from strandline.jobs.operations.status import silver_status
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.gap import gaps_of
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]

PATCHES: dict[str, Any] = {"mode": "change_streams"}
SKIPPING: dict[str, Any] = {"cursor_oversize_handling_mode": "skip", "cursor_oversize_skip_threshold": 2_000}


def rows_of(ctx: JobContext, collection: str = "a") -> dict[str, dict[str, Any]]:
    return rows_in(silver(ctx, collection))


def rows_in(table: DataFrame) -> dict[str, dict[str, Any]]:
    """By key: the document, and what the row says of it."""
    columns = ("_key", "_document", "_deleted", "_exact", "_inexact_because", "size(_pending) AS waiting")
    found = table.selectExpr(*columns).collect()
    return {
        row["_key"]: row.asDict()
        | {"_document": None if row["_document"] is None else bson.decode(bytes(row["_document"]))}
        for row in found
    }


def counts(ctx: JobContext) -> tuple[int, int, int]:
    """Living, waiting and stale rows of the one silver table."""
    (table,) = silver_status(ctx)
    return table.live, table.waiting, table.stale


# scenario: K10, L03: an update whose document was gone when it was looked up, and no delete follows
@pytest.mark.long
@pytest.mark.parametrize("on_drop", ["archive", "soft_delete"])
def test_an_update_before_a_drop_is_folded_or_waits(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, on_drop: str
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), on_drop=on_drop, history="scd2")
    land(ctx)
    database.a.insert_many([{"_id": n, "status": "open"} for n in (1, 2)])
    land(ctx)
    database.a.update_one({"_id": 2}, {"$set": {"seen": True}})
    land(ctx)  # document 2 was looked up: nothing is folded onto it
    database.a.update_many({}, {"$set": {"status": "PAID"}})
    database.a.drop()
    land(ctx)
    rows = rows_of(ctx)
    assert rows["1"]["_deleted"]
    assert rows["2"]["_deleted"]
    if on_drop == "archive":
        (archive,) = [name for name in ctx.tables.names("silver") if "_dropped_" in name.name]
        rows = rows_in(ctx.tables.read(archive))
    assert (rows["1"]["_document"], rows["1"]["_exact"], rows["1"]["waiting"]) == (
        {"_id": 1, "status": "PAID"},
        True,
        None,
    )
    assert (rows["2"]["_document"]["status"], rows["2"]["_exact"], rows["2"]["waiting"]) == ("open", False, 1)
    assert set(rows["2"]["_inexact_because"].split(", ")) == {"lookup", "waiting"}
    told = (
        ctx.tables.read(TableName("silver", "a_history"))
        .where("_op = 'u'")
        .orderBy("_position")
        .selectExpr("_key", "status")
    )
    assert [tuple(row) for row in told.collect()] == [("2", "open"), ("1", "PAID"), ("2", None)]


# scenario: K10: the common case
def test_an_update_before_a_delete_is_folded_and_nothing_waits(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    land(ctx)
    database.a.insert_many([{"_id": n, "v": 0} for n in range(4)])
    land(ctx)
    database.a.update_one({"_id": 2}, {"$set": {"v": 1}})
    land(ctx)
    database.a.update_many({"_id": {"$in": [1, 2]}}, {"$set": {"v": 2}})
    database.a.delete_many({"_id": {"$in": [1, 2]}})
    land(ctx)
    rows = rows_of(ctx)
    assert (rows["1"]["_document"]["v"], rows["2"]["_document"]["v"]) == (2, 1)
    assert [row["waiting"] for row in rows.values()] == [None] * 4
    assert counts(ctx) == (2, 0, 0)
    database.a.insert_one({"_id": 2, "v": 5})
    database.a.update_one({"_id": 3}, {"$set": {"v": 6}})
    land(ctx)
    assert_equal_to_source(ctx, database, "a")


# scenario: A17, M12
@pytest.mark.long
@pytest.mark.parametrize("snapshot_mode", ["initial", "no_data"])
def test_patches_wait_for_a_document_after_the_field_rules_changed(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, snapshot_mode: str
) -> None:
    def ctx(**rules: Any) -> JobContext:
        return pipeline(spark, mongo_uri, database.name, tmp_path, **PATCHES, **rules)

    excluding = {"field_exclude_list": f"{database.name}.a.a"}
    database.a.insert_many([{"_id": n, "a": {"b": 1}, "n": 0} for n in (1, 2)])
    database.b.insert_one({"_id": 1, "n": 0})
    land(ctx(**excluding))
    database.a.update_one({"_id": 1}, {"$set": {"n": 1}})
    land(ctx(**excluding))
    assert rows_of(ctx(**excluding))["1"]["_document"] == {"_id": 1, "n": 1}
    later = ctx(snapshot_mode=snapshot_mode)
    run_capture(later, once=True)
    database.a.update_one({"_id": 1}, {"$set": {"a.b": 2}})
    database.b.update_one({"_id": 1}, {"$set": {"n": 2}})
    land(later)
    assert rows_of(later, "b")["1"]["_document"] == {"_id": 1, "n": 2}
    if snapshot_mode == "initial":
        assert_equal_to_source(later, database, "a", "b")
    else:
        row = rows_of(later)["1"]
        assert (row["_document"], row["_exact"], row["_inexact_because"], row["waiting"]) == (
            {"_id": 1, "n": 1},
            False,
            "waiting",
            1,
        )


# scenario: H06
@pytest.mark.long
def test_patches_wait_while_a_users_stage_may_hide_changes(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    def ctx(**capture: Any) -> JobContext:
        return pipeline(spark, mongo_uri, database.name, tmp_path, **capture)

    def gaps() -> list[bool]:
        return [gap.is_open for gap in gaps_of(ctx().tables.properties(bronze_table("test")))]

    hiding = {"cursor_pipeline": json.dumps([{"$match": {"updateDescription.updatedFields.n": {"$ne": 1}}}])}
    database.a.insert_one({"_id": 0, "n": 0})
    land(ctx(**hiding))
    assert gaps() == [True]
    database.a.insert_one({"_id": 1, "n": 0})
    database.a.update_one({"_id": 1}, {"$set": {"n": 1}})
    database.a.update_one({"_id": 1}, {"$set": {"m": 1}})
    database.a.drop()
    land(ctx(**hiding))
    row = rows_of(ctx())["1"]
    assert (row["_document"], row["_exact"], row["_inexact_because"], row["waiting"]) == (
        {"_id": 1, "n": 0},
        False,
        "waiting",
        1,
    )
    database.a.insert_one({"_id": 2})
    land(ctx())
    assert gaps() == [False], "what comes from now on is whole"
    database.a.insert_one({"_id": 3, "n": 0})
    database.a.update_one({"_id": 3}, {"$set": {"n": 1}})
    database.a.drop()
    land(ctx())
    assert gaps() == [False]
    row = rows_of(ctx())["3"]
    assert (row["_document"], row["_exact"], row["waiting"]) == ({"_id": 3, "n": 1}, True, None)


# scenario: H06
@pytest.mark.long
def test_a_changed_user_stage_reads_the_collection_again(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    def ctx(*matches: dict[str, Any], **capture: Any) -> JobContext:
        stages = {"cursor_pipeline": json.dumps([{"$match": match} for match in matches])} if matches else {}
        return pipeline(spark, mongo_uri, database.name, tmp_path, **stages, **capture)

    def reads() -> int:
        return bronze(ctx()).where("op = 'r'").count()

    database.a.insert_one({"_id": 0})
    land(ctx())
    hidden, other = {"fullDocument.n": {"$ne": 1}}, {"fullDocument.n": {"$ne": 2}}
    first = reads()
    land(ctx(hidden))
    assert reads() == first, "nothing was left out before"
    database.a.insert_many([{"_id": n, "n": n} for n in (1, 2)])
    land(ctx(hidden))
    land(ctx(hidden))
    assert sorted(rows_of(ctx())) == ["0", "2"]
    assert reads() == first
    database.a.delete_one({"_id": 0})
    land(ctx(other))
    assert_equal_to_source(ctx(), database, "a")
    again = reads()
    assert again > first
    database.a.insert_many([{"_id": 3, "n": 2}, {"_id": 5}])  # the second moves the position past the first
    land(ctx(other))
    land(ctx(snapshot_mode="no_data"))
    assert reads() == again, "who wants no snapshot gets none"
    database.a.insert_one({"_id": 4, "n": 2})
    land(ctx())
    assert sorted(key for key, row in rows_of(ctx()).items() if not row["_deleted"]) == ["1", "2", "4", "5"]


# scenario: J06
@pytest.mark.long
@pytest.mark.parametrize("mode", ["change_streams", "change_streams_update_full"])
def test_a_document_that_was_left_out_makes_its_row_stale_until_a_newer_one_comes(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, mode: str
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path, mode=mode, **SKIPPING), history="scd2")
    land(ctx)
    database.a.insert_many([{"_id": n, "a": 1} for n in range(4)])
    land(ctx)
    database.a.replace_one({"_id": 1}, {"a": 2, "blob": "x" * 5_000})
    database.a.replace_one({"_id": 2}, {"a": 2, "blob": "x" * 5_000})
    database.a.insert_one({"_id": 9, "a": 2, "blob": "x" * 5_000})
    run_capture(ctx, once=True)
    database.a.update_one({"_id": 1}, {"$set": {"b": 1}})
    land(ctx)
    rows = rows_of(ctx)
    assert [
        (rows[key]["_document"], rows[key]["_exact"], rows[key]["_inexact_because"]) for key in ("0", "1", "2", "9")
    ] == [
        ({"_id": 0, "a": 1}, True, None),
        ({"_id": 1, "a": 1}, False, "oversize, waiting" if mode == "change_streams" else "oversize"),
        ({"_id": 2, "a": 1}, False, "oversize"),
        (None, False, "oversize"),
    ]
    assert counts(ctx) == (5, 1 if mode == "change_streams" else 0, 3)
    assert list_cuts(ctx, limit=1)[0]["inexact_reasons"] == (
        ["oversize", "waiting"] if mode == "change_streams" else ["lookup"]
    )
    unknown = (
        ctx.tables.read(TableName("silver", "a_history")).where("_key = '1' AND _op = 'u'").selectExpr("a", "_exact")
    )
    assert [tuple(row) for row in unknown.collect()] == [(None, None)] * 2
    assert {each.status for each in replay(ctx)} == {"replayed"}
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert counts(ctx) == (5, 0, 0)
    database.a.update_many({}, {"$set": {"b": 2}})
    if mode == "change_streams":
        land(ctx)
        assert_equal_to_source(ctx, database, "a")
        assert all(row["_exact"] for row in rows_of(ctx).values())
        assert list_cuts(ctx, limit=1)[0]["inexact_reasons"] == []


# scenario: C06: no server reads the past of a capped collection (246)
@pytest.mark.long
def test_patches_wait_above_a_read_of_a_capped_collection(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    capped = database.create_collection("a", capped=True, size=1024 * 1024)
    capped.insert_many([{"_id": n, "n": 0} for n in (1, 2)])
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path, **PATCHES), history="scd2")
    land(ctx)
    assert {row["operation_type"] for row in bronze(ctx).where("op = 'r'").collect()} == {"read_capped"}
    assert rows_of(ctx)["1"]["_inexact_because"] == "capped"
    capped.update_one({"_id": 1}, {"$inc": {"n": 1}})
    capped.insert_one({"_id": 3, "n": 0})
    capped.update_one({"_id": 3}, {"$inc": {"n": 1}})
    land(ctx)
    rows = rows_of(ctx)
    assert (rows["1"]["_document"]["n"], rows["1"]["_exact"], rows["1"]["_inexact_because"]) == (
        0,
        False,
        "capped, waiting",
    )
    assert (rows["3"]["_document"]["n"], rows["3"]["_exact"]) == (1, True)
    told = (
        ctx.tables.read(TableName("silver", "a_history"))
        .where("_key = '1'")
        .orderBy("_position")
        .selectExpr("n", "_exact")
    )
    assert [tuple(row) for row in told.collect()] == [(0, False), (None, None)]


# scenario: B11, K07: before MongoDB 6.1 an event does not tell a nested field from one whose name holds a dot
@pytest.mark.long
def test_a_path_that_can_be_read_in_two_ways_makes_a_row_inexact_until_a_document_comes(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path, **PATCHES), history="scd2")
    database.a.insert_many([{"_id": n, "a": {"b": 1}, "n": 0} for n in (1, 2)])
    land(ctx)
    database.a.update_one({"_id": 1}, {"$set": {"a.b": 2}})
    database.a.update_one({"_id": 2}, {"$set": {"n": 1}})
    land(ctx)
    assert list_cuts(ctx, limit=1)[0]["inexact_reasons"] == ["path"]
    database.a.update_one({"_id": 1}, {"$inc": {"n": 1}})
    land(ctx)
    assert_equal_to_source(ctx, database, "a")
    rows = rows_of(ctx)
    assert (rows["1"]["_exact"], rows["1"]["_inexact_because"], rows["1"]["waiting"]) == (False, "path", None)
    assert (rows["2"]["_exact"], rows["2"]["_inexact_because"]) == (True, None)
    told = (
        ctx.tables.read(TableName("silver", "a_history"))
        .where("_op = 'u'")
        .orderBy("_position")
        .selectExpr("_key", "n", "_exact")
    )
    assert [tuple(row) for row in told.collect()] == [("1", 0, False), ("2", 1, True), ("1", 1, False)]
    database.a.replace_one({"_id": 1}, {"n": 3})
    land(ctx)
    assert rows_of(ctx)["1"]["_exact"]
    assert list_cuts(ctx, limit=1)[0]["inexact_reasons"] == []
