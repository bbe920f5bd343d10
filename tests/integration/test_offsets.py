"""Offsets of a source: stop, show, alter, reset, start."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lakehouse import (
    assert_equal_to_source,
    bronze,
    bronze_writer,
    documents_in_silver,
    forget_log,
    pipeline,
    restore,
    silver,
    with_silver,
)
from processes import wait_until
from pydantic import SecretStr
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import ConfigurationError, ContractError, FencedError, ResumePointLost
from strandline.io.tables.file_maintenance import SparkFiles
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.capture.stream_loop import CaptureResult
from strandline.jobs.context import JobContext
from strandline.jobs.maintenance.delete_source import delete_source
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset, reset_offset
from strandline.jobs.offsets.show_offset import offset_history, show_offset
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.source.mongod import EmbeddedMongod, free_ports

Db = Database[dict[str, Any]]
BRONZE = bronze_table("test")


def stop(ctx: JobContext) -> None:
    set_desired_state(ctx, "stopped", by="ops", why="a test")


def start(ctx: JobContext) -> None:
    set_desired_state(ctx, "running", by="ops", why=None)


def out_of_reach(ctx: JobContext) -> JobContext:
    """Return the same pipeline with a source that does not answer."""
    nowhere = {"uri": SecretStr(f"mongodb://127.0.0.1:{free_ports(1)[0]}/"), "server_selection_timeout_ms": 300}
    source = ctx.settings.source.model_copy(update=nowhere)
    return JobContext(ctx.settings.model_copy(update={"source": source}), ctx.spark, ctx.tables)


def tokens(ctx: JobContext) -> list[str | None]:
    return [ended.resume_token for ended in offset_history(ctx, 100)]


@pytest.fixture
def captured(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> JobContext:
    """A pipeline whose snapshot of ten documents is in bronze."""
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": number} for number in range(10)])
    run_capture(ctx, once=True)
    return ctx


# scenario: O01
def test_a_source_without_an_offset_cannot_be_altered(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="no offset yet"):
        alter_offset(pipeline(spark, mongo_uri, database.name, tmp_path), "now", by="ops", why=None)


# scenario: O01, O07
def test_a_running_source_refuses_alter_and_delete_and_a_stopped_one_capture(captured: JobContext) -> None:
    with pytest.raises(ConfigurationError, match="running; its offset can be altered only while it is stopped → stran"):
        alter_offset(captured, show_offset(captured).resume_token or "", by="ops", why=None)
    with pytest.raises(ConfigurationError, match="running; it is deleted only while it is stopped → strandline stop"):
        delete_source(captured, by="ops", why=None)
    stop(captured)
    stop(captured)  # stopping twice is stopping once
    with pytest.raises(ConfigurationError, match="stopped → strandline start"):
        run_capture(captured, once=True)


# promise 8; scenario: O03, O05, E08
def test_an_offset_moved_back_fences_a_sleeping_writer_and_repeats_harmless_events(
    captured: JobContext, database: Db
) -> None:
    before = show_offset(captured)
    database.a.insert_one({"_id": 10})
    database.a.delete_one({"_id": 3})
    run_capture(captured, once=True)
    run_silver(captured)
    zombie = bronze_writer(captured.tables, "test", "zombie")
    asleep = zombie.open(captured.tables.properties(BRONZE)["strandline.deployment"], f"database {database.name}")
    assert asleep is not None
    stop(captured)

    dry = alter_offset(captured, before.resume_token or "", by="ops", why=None, dry_run=True)
    assert (dry.direction, dry.events, dry.committed_batch) == ("back", 2, None)
    assert show_offset(captured).batch == asleep.batch
    done = alter_offset(captured, before.resume_token or "", by="ops", why="replay")
    assert (done.events, done.committed_batch) == (2, asleep.batch + 1)
    again = alter_offset(captured, before.resume_token or "", by="ops", why="replay")
    assert (again.direction, again.committed_batch) == ("none", None)
    with pytest.raises(FencedError):
        zombie.commit([], batch=asleep.batch + 1, resume_token='{"_data": "82"}', snapshot_id=None)
    altered = next(ended for ended in offset_history(captured, 100) if ended.kind == "alter")
    assert json.loads(altered.note or "")["why"] == "replay"

    start(captured)
    assert run_capture(captured, once=True).events == 2
    run_silver(captured)
    assert_equal_to_source(captured, database, "a")


# scenario: O06
def test_a_reset_opens_an_epoch_and_a_document_that_is_gone_stays_gone(captured: JobContext, database: Db) -> None:
    run_silver(captured)
    stop(captured)
    assert reset_offset(captured, by="ops", why="from scratch").committed_batch is not None
    assert reset_offset(captured, by="ops", why="from scratch").direction == "none"
    shown = show_offset(captured)
    assert (shown.state, shown.epoch, shown.resume_token) == ("stopped", 2, None)
    assert "reset" in [ended.kind for ended in offset_history(captured, 100)]
    start(captured)
    database.a.delete_one({"_id": 4})
    assert run_capture(captured, once=True).documents == 9
    run_silver(captured)
    assert_equal_to_source(captured, database, "a")


# scenario: O07
def test_a_deleted_source_loses_its_tables_and_signals_and_begins_anew(captured: JobContext) -> None:
    run_silver(captured)
    stop(captured)
    send_signal(captured, "stop-snapshot", {"type": "incremental"}, by="ops")
    tables = [TableName("silver", "a"), BRONZE]
    assert delete_source(captured, by="ops", why=None, dry_run=True) == tables
    assert delete_source(captured, by="ops", why="moved away") == tables
    assert [captured.tables.exists(table) for table in tables] == [False, False]
    with pytest.raises(ConfigurationError, match="deleted → strandline start"):
        run_capture(captured, once=True)
    start(captured)
    later = send_signal(captured, "log", {"message": "a new beginning"}, by="ops")
    assert run_capture(captured, once=True).documents == 10
    assert [row["snapshot_id"] for row in bronze(captured).where("op = 'signal'").collect()] == [later.id]


# scenario: O08, G10, and bad targets
def test_targets_that_the_source_cannot_go_on_from_are_refused(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    stop(out_of_reach(ctx))
    last = show_offset(ctx)
    data = json.loads(last.resume_token or "")["_data"]
    for target, reason in {
        "soon": "no token, time or table version",
        "99": "held no offset at version 99",
        '{"_data": 7}': "no document with _data",
        "DEADBEEFDEADBEEF": "its oplog does not hold it",
        "2099-01-01T00:00:00+00:00": "future",
        "2107-01-01T00:00:00+00:00": "future",
        "1969-12-31T23:59:59+00:00": "is no token, time",
        "F" + data[1:]: "future|does not hold",
    }.items():
        with pytest.raises(ConfigurationError, match=reason):
            alter_offset(ctx, target, by="ops", why=None)
    assert show_offset(ctx).batch == last.batch
    whole = pipeline(spark, mongo_uri, "whole", tmp_path, scope="deployment", target=None)
    start(ctx)
    with pytest.raises(
        ConfigurationError, match=f"holds the stream of database {database.name}, and the configuration says deployment"
    ):
        run_capture(whole, once=True)


@pytest.mark.check
def test_a_reset_starts_at_the_present_also_after_a_first_run_at_another_place(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.people.insert_many([{"_id": number} for number in range(3)])
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, start_at="2013-06-01")
    assert run_capture(ctx, once=True).events > 0, "the first run starts in the past"
    stop(ctx)
    reset_offset(ctx, by="ops", why="the source has forgotten it")
    start(ctx)
    again = run_capture(ctx, once=True)
    assert (again.events, again.documents) == (0, 3)


RESERVED = (
    "_Deleted",
    "_KEY",
    "_Op",
    "_Valid_To",
    "_commit_version",
    "_Change_Type",
    "_commit_timestamp",
    "_strandline_action",
)
AWKWARD = ("exact", "_action", "key", "position", "op", "end", "held", "facts", "since", "base_op", "envelope", "batch")


# promise 3: a move forward loses events and records a gap; a later patch waits for a later document.
# The documents have fields with the names that silver and its history use themselves (scenario: S06)
@pytest.mark.long
def test_going_forward_leaves_a_gap_that_a_reset_heals(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams"), history="scd2")
    names = dict.fromkeys([*RESERVED, *AWKWARD], 1)
    database.a.insert_many([{"_id": number, "n": 0, **names} for number in range(4)])
    run_capture(ctx, once=True)
    run_silver(ctx)
    database.a.update_one({"_id": 1}, {"$set": {"lost": True}})
    database.a.delete_one({"_id": 2})
    time.sleep(1.1)  # a time has whole seconds
    stop(ctx)
    move = alter_offset(ctx, datetime.now(UTC).isoformat(), by="ops", why="skip the flood")
    assert (move.direction, move.events) == ("forward", 2)
    gap = bronze(ctx).where("op = 'gap'").select("operation_type", "after").first()
    assert gap is not None
    assert (gap["operation_type"], json.loads(gap["after"])["why"]) == ("altered", "skip the flood")
    start(ctx)
    database.a.update_one({"_id": 1}, {"$set": {"n": 5}})
    run_capture(ctx, once=True)
    run_silver(ctx)
    held = documents_in_silver(ctx, "a")
    assert b"lost" not in held["1"]
    assert b"n\x00\x00\x00\x00\x00" in held["1"], "a patch was folded onto a document from before the gap"
    stop(ctx)
    streamed = show_offset(ctx).resume_token
    reset_offset(ctx, by="ops", why="heal")
    database.a.delete_one({"_id": 3})
    move = alter_offset(ctx, "now", by="ops", why="after a reset it is forward all the same")
    assert (move.direction, move.from_token, move.events) == ("forward", streamed, 1)
    assert bronze(ctx).where("op = 'gap'").count() == 2
    assert alter_offset(ctx, streamed or "", by="ops", why=None).direction == "back"
    reset_offset(ctx, by="ops", why="heal")
    start(ctx)
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 2, "n": 2})
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    for table in (silver(ctx, "a"), ctx.tables.read(TableName("silver", "a_history"))):
        assert set(AWKWARD) < set(table.columns)
        rescued = F.json_object_keys(F.col("_rescued").cast("string"))
        assert set(RESERVED) == set(
            table.where("_document IS NOT NULL").select(F.explode(rescued)).distinct().toPandas()["col"]
        )
    swept = ctx.tables.read(TableName("silver", "a_history")).where("_key = '2'").orderBy("_position")
    assert [row["_op"] for row in swept.collect()] == ["r", "d", "c"], (
        "one run saw that it was gone and that it came again"
    )


# scenario: J02, O03
def test_the_position_moves_past_an_event_that_the_server_cannot_send(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams_with_pre_image")
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    database.a.insert_one({"_id": 1, "heavy": "x" * (9 * 1024 * 1024)})
    run_capture(ctx, once=True)
    database.a.update_one({"_id": 1}, {"$set": {"heavy": "y" * (9 * 1024 * 1024)}})
    with pytest.raises(ConfigurationError, match="exceeds 16 MiB"):
        run_capture(ctx, once=True)
    time.sleep(1.1)  # a time has whole seconds
    stop(ctx)
    move = alter_offset(ctx, datetime.now(UTC).isoformat(), by="ops", why="too large")
    assert (move.direction, move.events) == ("forward", 1)
    start(ctx)
    database.a.insert_one({"_id": 2})
    assert run_capture(ctx, once=True).events == 1


# scenario: R07, and KIP-875's orders of stop, pause, resume and start
def test_a_running_capture_pauses_resumes_and_ends_when_its_source_is_stopped(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, heartbeat_interval_ms=500)
    database.a.insert_one({"_id": 0})
    run_capture(ctx, once=True)
    ended: list[CaptureResult] = []
    running = threading.Thread(target=lambda: ended.append(run_capture(ctx)))
    running.start()

    def landed() -> int:
        return bronze(ctx).where(F.col("op") == "c").count()

    database.a.insert_one({"_id": 1})
    wait_until(lambda: landed() == 1)
    set_desired_state(ctx, "paused", by="ops", why=None)
    time.sleep(1.5)
    database.a.insert_one({"_id": 2})
    time.sleep(1.5)
    assert landed() == 1
    with pytest.raises(ConfigurationError, match="paused; its offset can be altered only while it is stopped"):
        alter_offset(ctx, "now", by="ops", why=None)
    set_desired_state(ctx, "running", by="ops", why=None)
    wait_until(lambda: landed() == 2)
    stop(ctx)
    running.join(timeout=60)
    assert not running.is_alive()
    assert ended[0].events == 2
    start(ctx)
    assert run_capture(ctx, once=True).events == 0


# scenario: R07
@pytest.mark.parametrize("by_signal", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_running_capture_whose_source_is_away_ends_when_it_is_told_to(
    spark: SparkSession, tmp_path: Path, by_signal: bool
) -> None:
    stopped = threading.Event()
    with EmbeddedMongod() as server, MongoClient[dict[str, Any]](server.uri) as client:
        ctx = pipeline(spark, server.uri, "t", tmp_path, heartbeat_interval_ms=500)
        client.t.a.insert_one({"_id": 0})
        run_capture(ctx, once=True)
        running = threading.Thread(target=lambda: run_capture(ctx, stop=stopped))
        running.start()
        client.t.a.insert_one({"_id": 1})
        wait_until(lambda: bronze(ctx).where(F.col("op") == "c").count() == 1)
        server.kill()
        time.sleep(3)
        batch = offset_history(ctx, 1)[0].batch
        if by_signal:
            stopped.set()
        else:
            stop(out_of_reach(ctx))
        running.join(timeout=20)
        assert not running.is_alive()
        assert offset_history(ctx, 1)[0].batch == batch


# scenario: O11, G11
@pytest.mark.long
def test_bronze_restored_to_an_older_version_goes_on_from_the_older_token(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    older = ctx.tables.version(BRONZE)
    for number in (2, 3):
        database.a.insert_one({"_id": number})
        run_capture(ctx, once=True)
    SparkFiles(ctx.tables, BRONZE).compact()
    writer = bronze_writer(ctx.tables, "test", "meanwhile")
    last = writer.open(ctx.tables.properties(BRONZE)["strandline.deployment"], None)
    assert last is not None
    restore(ctx, BRONZE, older)
    with pytest.raises(ContractError, match="restored to an older version while this capture was writing"):
        writer.commit([], batch=last.batch + 1, resume_token=last.resume_token or "", snapshot_id=None)
    database.a.insert_one({"_id": 4})
    assert run_capture(ctx, once=True).events == 3
    assert show_offset(ctx).epoch == 2
    restore(ctx, BRONZE, older)  # the log still knows epoch 1 as ended
    assert run_capture(ctx, once=True).events == 3
    assert show_offset(ctx).epoch == 3
    restore(ctx, BRONZE, older)
    forget_log(ctx.tables, BRONZE)
    assert run_capture(ctx, once=True).events == 3
    assert show_offset(ctx).epoch == 4
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    future = json.dumps({"_data": "82FFFFFFF0" + json.loads(last.resume_token or "")["_data"][10:]})
    writer = bronze_writer(ctx.tables, "test", "from the future")
    newest = writer.open(ctx.tables.properties(BRONZE)["strandline.deployment"], None)
    assert newest is not None
    writer.commit([], batch=newest.batch + 1, resume_token=future, snapshot_id=None)
    with pytest.raises(ResumePointLost, match="lies in the source's future"):
        run_capture(ctx, once=True)
