"""A capture is killed, fenced, or resumes late: bronze has every event once, and silver equals the source."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from lake_place import NATIVE_PLACES, PLACE, lake_environment
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze_writer, spark_pipeline
from processes import environment, repeated
from pymongo.database import Database
from pyspark.sql import DataFrame, SparkSession
from tenacity import stop_after_attempt

from strandline.bronze.offsets import Committed, committed
from strandline.bronze.writer import BronzeWriter
from strandline.errors import FencedError
from strandline.io.delta_log.append_result import AlreadyAppended, Appended, LostRace
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName, literal

Db = Database[dict[str, Any]]
_FIRST = "native" if PLACE in NATIVE_PLACES else "spark"
"""Engine of every other capture. It writes in a second; Spark's JVM needs ten."""
_TOKEN = '{"_data": "8200"}'


def capture_environment(uri: str, database: str, root: Path) -> dict[str, str]:
    return environment(uri, database) | {
        "STRANDLINE_CAPTURE__SNAPSHOT_CHUNK_SIZE": "500",
        "STRANDLINE_CAPTURE__MAX_BATCH_SIZE": "300",
        "STRANDLINE_CAPTURE__HEARTBEAT_INTERVAL_MS": "100",
        **lake_environment(root),
    }


def capture(env: dict[str, str], *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "strandline.cli", "capture", *options]
    return subprocess.Popen(
        command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )


def kill_with_its_jvm(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def changing(database: Db) -> AbstractContextManager[None]:
    """Write to the source during the block."""

    def write(number: int) -> None:
        database.a.update_one({"_id": number % 2000}, {"$inc": {"n": 1}}, upsert=True)
        if number % 7 == 0:
            database.a.delete_one({"_id": number % 500})

    return repeated(write, every=0.03)


def killed_again_and_again(spark: SparkSession, uri: str, database: Db, root: Path, kills: int) -> None:
    chance = random.Random(kills)
    database.a.insert_many([{"_id": number, "text": "x" * 50} for number in range(2000)])
    env = capture_environment(uri, database.name, root)
    with changing(database):
        for number in range(kills):
            engine = "spark" if number % 2 else _FIRST
            process = capture(env | {"STRANDLINE_CAPTURE__ENGINE": engine})
            time.sleep(
                chance.uniform(1, 6) if engine == "native" else chance.uniform(6, 22)
            )  # from start to full stream
            assert process.poll() is None, process.communicate()[1]
            kill_with_its_jvm(process)
    ctx = spark_pipeline(spark, uri, database.name, root)
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, database, "a")


# scenario: A01, E15, N08
def test_capture_killed_at_random_moments_loses_and_repeats_nothing(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    killed_again_and_again(spark, mongo_uri, database, tmp_path, kills=3)


@pytest.mark.long
def test_capture_killed_twenty_times_loses_and_repeats_nothing(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    killed_again_and_again(spark, mongo_uri, database, tmp_path, kills=20)


# scenario: N08
def test_capture_killed_before_the_first_commit_of_bronze_begins_again(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.io.tables.table_creation._CREATION_ENDS", stop_after_attempt(2))
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": number} for number in range(5)])
    # only so does Spark create a folder in any place
    empty_log = literal(f"{ctx.tables.lake.path(bronze_table('test'))}/_delta_log")
    spark.sql(f"CREATE DATABASE {database.name}_half LOCATION {empty_log}")
    try:
        run_capture(ctx, once=True)
        run_silver(ctx)
        assert_equal_to_source(ctx, database, "a")
    finally:
        spark.sql(f"DROP DATABASE {database.name}_half")


# scenario: Q03, Q07
def test_of_two_captures_one_wins_and_the_other_exits_6(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.a.insert_many([{"_id": number} for number in range(2000)])
    env = capture_environment(mongo_uri, database.name, tmp_path)
    with changing(database):
        rivals = [capture(env), capture(env)]
        try:
            deadline = time.monotonic() + 150
            while all(rival.poll() is None for rival in rivals) and time.monotonic() < deadline:
                time.sleep(0.2)
            losers = [rival for rival in rivals if rival.poll() is not None]
            complaints = [loser.communicate()[1] for loser in losers]
            assert [loser.returncode for loser in losers] == [6], "\n".join(complaints)
            complaint = complaints[0].strip().splitlines()[-1]
            assert "another writer committed" in complaint
            (winner,) = (rival for rival in rivals if rival.poll() is None)
            time.sleep(2)
            winner.send_signal(signal.SIGTERM)
            _, errors = winner.communicate(timeout=90)
            assert winner.returncode == 0, errors
        finally:
            for rival in rivals:
                if rival.poll() is None:
                    kill_with_its_jvm(rival)
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, database, "a")


# scenario: Q05, O05, and the design's "the process pauses for an hour and wakes"
def test_a_writer_that_wakes_up_late_notices_that_its_batch_is_taken(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)

    def writer(name: str) -> BronzeWriter:
        return bronze_writer(ctx.tables, "test", name)

    sleeper, rival = writer("sleeper"), writer("rival")
    assert sleeper.open("cluster", None) is None
    sleeper.commit([], batch=1, resume_token=_TOKEN, snapshot_id=None)
    last = rival.open("cluster", None)
    assert last is not None
    assert last.batch == 1
    rival.commit([], batch=2, resume_token=_TOKEN, snapshot_id=None)
    rival.commit([], batch=3, resume_token=_TOKEN, snapshot_id=None)
    version = ctx.tables.version(rival.table)
    for batch in (2, 3):
        with pytest.raises(FencedError, match="another writer"):
            sleeper.commit([], batch=batch, resume_token=_TOKEN, snapshot_id=None)
    assert ctx.tables.version(rival.table) == version
    rival.commit([], batch=4, resume_token=_TOKEN, snapshot_id=None)
    reopened = writer("third").open("cluster", None)
    assert reopened is not None
    assert reopened.batch == 4


# scenario: E03: the commit landed but its answer was lost
def test_a_writer_that_repeats_its_own_commit_knows_it_again(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    writer = bronze_writer(ctx.tables, "test", "me")
    writer.open("cluster", None)
    writer.commit([], batch=1, resume_token=_TOKEN, snapshot_id=None)
    writer.commit([], batch=1, resume_token=_TOKEN, snapshot_id=None)
    assert ctx.tables.read(writer.table).count() == 1


# scenario: Q03
def test_a_rival_that_begins_while_bronze_is_opened_is_a_rival(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    late, rival = (
        bronze_writer(ctx.tables, "test", "late"),
        bronze_writer(ctx.tables, "test", "rival"),
    )
    assert rival.open("cluster", None) is None
    begun: list[Committed] = []

    def then_the_rival_begins(tables: Tables, table: TableName) -> Committed | None:
        found = committed(tables, table)
        if not begun:
            begun.append(rival.commit([], batch=1, resume_token=_TOKEN, snapshot_id=None))
        return found

    monkeypatch.setattr("strandline.bronze.writer.committed", then_the_rival_begins)
    assert late.open("cluster", None) == begun[0]


@dataclass(frozen=True)
class OvertakenTables(Tables):
    """Tables of a writer that loses a race: another process commits the first batch just before it."""

    overtaken: list[str] = field(default_factory=list)

    def append_once(self, table: TableName, rows: DataFrame, **how: Any) -> Appended | AlreadyAppended | LostRace:
        if not self.overtaken:
            self.overtaken.append(how["app_id"])
            super().append_once(table, rows, **{**how, "proof": "the rival's"})
        return super().append_once(table, rows, **how)


# scenario: Q08
def test_a_capture_that_is_fenced_at_its_start_reads_nothing(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.a.insert_many([{"_id": number} for number in range(9)])
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    tables, seen = OvertakenTables(spark, ctx.tables.lake), database.command("profile", 2)
    try:
        with pytest.raises(FencedError, match="another writer committed batch 1"):
            run_capture(JobContext(ctx.settings, spark, tables), once=True)
    finally:
        database.command("profile", seen["was"])
    assert tables.overtaken == ["strandline:test:1"]
    assert ctx.tables.read(bronze_table("test")).count() == 1, "the rival's"
    asked = [operation["command"] for operation in database["system.profile"].find({"appName": "strandline"})]
    assert [command for command in asked if "find" in command or "getMore" in command] == []
