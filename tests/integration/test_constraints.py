"""Documents that break a constraint which the user put on a table: dead letters, and everything else goes on."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import bson
import pytest
from lakehouse import assert_columns_show_documents, land, pipeline, silver, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.operations.dead_letter_replay import replay
from strandline.jobs.operations.dead_letters import list_dead_letters
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
A, A_HISTORY = TableName("silver", "a"), TableName("silver", "a_history")


def add_constraint(ctx: JobContext, table: TableName, sql: str) -> None:
    ctx.spark.sql(f"ALTER TABLE {ctx.tables.lake.sql(table)} ADD CONSTRAINT positive CHECK ({sql})")


def make_not_null(ctx: JobContext, table: TableName, column: str) -> None:
    """As other writers of Delta can: in the log, the column is not nullable."""
    folder = LocalFolder(Path(ctx.tables.lake.path(table)))
    log = LogFolder(folder)
    newest = log.newest()
    actions = [action for version in range(newest + 1) for action in log.actions(version) or ()]
    metadata = [action["metaData"] for action in actions if "metaData" in action][-1]
    schema = json.loads(metadata["schemaString"])
    next(field for field in schema["fields"] if field["name"] == column)["nullable"] = False
    action = {"metaData": metadata | {"schemaString": json.dumps(schema)}}
    file = Path(ctx.tables.lake.path(table)) / "_delta_log" / f"{newest + 1:020}.json"
    info = {"commitInfo": {"timestamp": 0, "operation": "CHANGE COLUMN", "operationParameters": {}}}
    file.write_text("\n".join(map(json.dumps, (info, action))), encoding="utf-8")


def totals(ctx: JobContext) -> dict[str, Any]:
    rows = silver(ctx, "a").select("_key", "total", "_deleted", "_inexact_because").collect()
    return {row["_key"]: (row["total"], row["_inexact_because"]) for row in rows if not row["_deleted"]}


# scenario: S09
@pytest.mark.parametrize(("engine", "sql"), [("auto", "total IS NULL OR total > 0"), ("spark", "total > 0")])
def test_a_document_that_breaks_a_constraint_is_a_dead_letter_and_the_rest_goes_on(
    spark: SparkSession,
    mongo_uri: str,
    database: Db,
    tmp_path: Path,
    engine: Any,
    sql: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), history="scd2", engine=engine)
    database.a.insert_many([{"_id": number, "total": 1} for number in range(4)])
    land(ctx)
    for table in (A, A_HISTORY):
        add_constraint(ctx, table, sql)
    database.a.update_one({"_id": 0}, {"$set": {"total": -7777}})
    database.a.update_one({"_id": 1}, {"$set": {"total": 2}})
    database.a.insert_many([{"_id": 8, "total": -7777}, {"_id": 9, "total": 9}])
    with caplog.at_level(logging.WARNING, "strandline"):
        land(ctx)
    expected: dict[str, Any] = {
        "0": (1, "oversize"),
        "1": (2, "lookup"),
        "2": (1, None),
        "3": (1, None),
        "9": (9, None),
    }
    found = totals(ctx)
    assert found.pop("8", (None, "oversize")) == (None, "oversize")
    assert found == expected
    letters = list_dead_letters(ctx)
    assert sorted((row["key"], row["class"], row["message"]) for row in letters) == [
        (key, "ConstraintBroken", "a constraint of the table refuses it: positive") for key in ("0", "8")
    ]
    lines = [record.getMessage() for record in caplog.records if "break a constraint" in record.getMessage()]
    assert lines[0].startswith(f"2 documents of {database.name}.a break a constraint of silver.a: ")
    assert "7777" not in caplog.text
    assert_columns_show_documents(ctx, A, A_HISTORY)

    database.a.update_one({"_id": 0}, {"$set": {"total": 5}})
    database.a.update_one({"_id": 8}, {"$set": {"total": 6}})
    database.a.delete_one({"_id": 2})
    land(ctx)
    assert totals(ctx) == {
        key: (value[0], None if key in "39" else "lookup") for key, value in expected.items() if key != "2"
    } | {
        "0": (5, "lookup"),
        "8": (6, "lookup"),
    }
    newest = ctx.tables.read(A_HISTORY).where("_valid_to_position IS NULL AND NOT _deleted").select("_key", "total")
    assert dict(map(tuple, newest.collect())) == {"0": 5, "1": 2, "3": 1, "8": 6, "9": 9}


@pytest.mark.parametrize("deletes", ["soft", pytest.param("hard", marks=pytest.mark.long)])
def test_patches_wait_and_snapshot_rows_and_rebuilds_hold_to_the_constraint(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, deletes: Any
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams")
    ctx = with_silver(ctx, deletes=deletes, history="scd2")
    database.a.insert_many([{"_id": number, "total": 1, "n": 0} for number in range(3)])
    land(ctx)
    for table in (A, A_HISTORY):
        add_constraint(ctx, table, "total > 0")
    database.a.update_one({"_id": 0}, {"$set": {"total": -1}})
    land(ctx)
    database.a.update_one({"_id": 0}, {"$set": {"n": 1}})  # onto a document that silver does not have
    database.a.delete_one({"_id": 1})
    land(ctx)
    assert totals(ctx) == {"0": (1, "oversize, waiting"), "2": (1, None)}
    assert ctx.tables.read(A_HISTORY).where("_key = '0' AND n = 1 AND total = 1").count() == 0

    send_signal(ctx, "execute-snapshot", {"data-collections": [rf"{database.name}\.a"]}, by="ops")
    land(ctx)
    assert totals(ctx)["0"][0] == 1, "the READ breaks the constraint as well"
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    run_rebuild(ctx, "silver.a")
    assert totals(ctx) == {"2": (1, None)}
    set_desired_state(ctx, "running", by="ops", why=None)
    database.a.update_one({"_id": 0}, {"$set": {"total": 3}})
    land(ctx)
    assert {each.status for each in replay(ctx)} == {"replayed"}
    run_silver(ctx)
    assert totals(ctx) == {"0": (3, None), "2": (1, None)}
    (document,) = silver(ctx, "a").where("_key = '0'").select("_document").collect()
    assert bson.decode(bytes(document[0])) == {"_id": 0, "total": 3, "n": 1}

    database.a.drop()
    land(with_silver(ctx, deletes=deletes, on_drop="soft_delete"))
    assert totals(ctx) == {}


def test_a_null_in_a_column_that_must_not_be_null_is_a_dead_letter(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": number, "total": 1} for number in range(2)])
    land(ctx)
    make_not_null(ctx, A, "total")
    database.a.update_one({"_id": 0}, {"$unset": {"total": 1}})
    database.a.insert_one({"_id": 2, "total": 2})
    land(ctx)
    assert totals(ctx) == {"0": (1, "oversize"), "1": (1, None), "2": (2, None)}
    assert [(row["key"], row["message"].split(": ")[1]) for row in list_dead_letters(ctx)] == [
        ("0", "NOT NULL of total")
    ]


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_many_texts_that_are_too_long_for_their_column_are_dead_letters(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, deletes: Any
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), deletes=deletes)
    database.a.insert_one({"_id": 0, "total": 0})
    land(ctx)
    spark.sql(f"ALTER TABLE {ctx.tables.lake.sql(A)} ADD COLUMN code VARCHAR(3)")
    database.a.insert_many([{"_id": number, "total": number, "code": "x" * (number % 6)} for number in range(1, 61)])
    database.a.insert_one({"_id": 61, "total": 61, "code": "gone before silver ran"})
    database.a.delete_one({"_id": 61})
    database.a.update_one({"_id": 0}, {"$set": {"code": "too long"}})
    land(ctx)
    long = [number for number in range(1, 61) if number % 6 > 3]
    kept = {key: total for key, (total, _) in totals(ctx).items() if total is not None}
    assert kept == {str(number): number for number in range(61) if number not in long}
    letters = list_dead_letters(ctx)
    gone = [61] if deletes == "soft" else []  # a tombstone keeps the last values, if the constraints accept them
    assert {row["key"] for row in letters} == {"0", *map(str, [*long, *gone])}
    assert {row["message"] for row in letters} == {"a constraint of the table refuses it: varchar(3) of code"}

    database.a.update_many({}, {"$set": {"code": "abc"}})
    database.a.delete_many({"_id": {"$lt": 10}})
    land(ctx)
    assert {key: total for key, (total, _) in totals(ctx).items()} == {str(number): number for number in range(10, 61)}
