"""Small batches of silver, merged without a Spark job: when, and what happens when something comes in between."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from lake_place import PLACE
from lakehouse import assert_equal_to_source, land, pipeline, silver, with_silver
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.io.delta_log.table_folder import commit_name
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import tables_here
from strandline.jobs.silver import bronze_rows
from strandline.jobs.silver.bronze_rows import BronzeRows
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.silver.bronze_increment import BronzeIncrement

Db = Database[dict[str, Any]]
pytestmark = pytest.mark.skipif(PLACE == "hdfs", reason="delta-rs does not reach HDFS: Spark merges every batch there")
_TABLE = TableName("silver", "a")
_HERE = ["delta-rs: MERGE", "delta-rs: SET TBLPROPERTIES"]
"""Commits of a small batch. The first one of a table also gives it a protocol that delta-rs does not raise."""


def commits(ctx: JobContext, after: int) -> list[str]:
    """Writer and operation of each commit of the table above version *after*, oldest first."""
    found = ctx.tables.commits_between(_TABLE, after, ctx.tables.version(_TABLE))
    assert found is not None
    return [f"{re.split('[/:]', one.engine or '')[0]}: {one.operation}" for one in reversed(found)]


def no_links(*_: object) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


@pytest.fixture
def ctx(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> JobContext:
    """A pipeline whose table exists, made by Spark, with documents 0 to 9."""
    given = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), engine="auto")
    database.a.insert_many([{"_id": number, "n": number, "t": "x", "l": [{"d": 1}]} for number in range(10)])
    land(with_silver(given, engine="spark"))
    return given


# promises 2 and 3
@pytest.mark.check
def test_inserts_updates_and_deletes_are_merged_by_this_process(ctx: JobContext, database: Db) -> None:
    before = ctx.tables.version(_TABLE)
    database.a.insert_many([{"_id": f"{number}", "n": number} for number in range(5)])
    database.a.update_many({"n": {"$lt": 3}}, {"$set": {"t": None}})
    database.a.delete_one({"_id": 9})
    land(ctx)
    assert commits(ctx, before) == [_HERE[0], "strandline: UPGRADE PROTOCOL", _HERE[1]]
    assert_equal_to_source(ctx, database, "a")
    assert [row["_key"] for row in silver(ctx, "a").where("_deleted AND n = 9").collect()] == ["9"]
    assert run_silver(ctx) == []
    before = ctx.tables.version(_TABLE)
    database.a.delete_one({"_id": 8})
    land(ctx)
    assert commits(ctx, before) == _HERE


# promise 2
def test_an_old_time_is_read_by_a_spark_that_asks_for_the_calendar_of_a_file(ctx: JobContext, database: Db) -> None:
    database.a.insert_one({"_id": 50, "at": datetime(1500, 1, 1)})
    land(ctx)
    before = ctx.tables.version(_TABLE)
    database.a.insert_one({"_id": 51, "at": datetime(1400, 1, 1)})
    land(ctx)
    database.a.update_one({"_id": 50}, {"$set": {"n": 1}})
    land(ctx)
    assert "delta-rs: MERGE" not in commits(ctx, before), "delta-rs cannot name the calendar of a file"
    mode = "spark.sql.parquet.datetimeRebaseModeInRead"
    as_set = ctx.spark.conf.get(mode)
    ctx.spark.conf.set(mode, "EXCEPTION")  # the default of Spark 3
    try:
        rows = silver(ctx, "a").where("at IS NOT NULL").selectExpr("year(at) AS year").collect()
    finally:
        ctx.spark.conf.set(mode, as_set)
    assert sorted(row["year"] for row in rows) == [1400, 1500]


def _drop(database: Db) -> None:
    database.a.drop()
    database.a.insert_one({"_id": 1, "n": 1})


def _rename(database: Db) -> None:
    database.b.insert_one({"_id": 1, "n": 1})
    database.b.rename("a", dropTarget=True)


# promise 2
@pytest.mark.parametrize("change", [_drop, _rename])
def test_drops_and_renames_are_merged_by_spark(ctx: JobContext, database: Db, change: Callable[[Db], None]) -> None:
    before = ctx.tables.version(_TABLE)
    change(database)
    land(ctx)
    assert "delta-rs: MERGE" not in commits(ctx, before)
    assert_equal_to_source(ctx, database, "a")
    before = ctx.tables.version(_TABLE)
    database.a.update_one({"_id": 1}, {"$set": {"n": 7}})
    land(ctx)
    assert "delta-rs: MERGE" not in commits(ctx, before), "incarnations stay with Spark"
    assert_equal_to_source(ctx, database, "a")


# promise 2
def test_a_table_that_delta_rs_cannot_change_is_merged_by_spark_and_the_log_says_so_once(
    ctx: JobContext, database: Db, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader's feature, files of another table, a file system without hard links, a property in capitals."""
    path, reasons = ctx.tables.lake.path(_TABLE), list[str]()
    caplog.set_level(logging.INFO, "strandline")

    def alter(change: str) -> None:
        ctx.spark.sql(f"ALTER TABLE delta.`{path}` {change}")

    def clone() -> None:
        Path(path).rename(f"{path}_before")
        ctx.spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{path}_before`")

    def writer_after(change: Callable[[], object]) -> str:
        """Return the writer of a small batch that silver merges after *change*. *reasons* are those of the log."""
        database.a.update_one({"_id": 1}, {"$inc": {"n": 100}})
        run_capture(ctx, once=True)
        change()
        before = ctx.tables.version(_TABLE)
        caplog.clear()
        run_silver(ctx)
        assert [record for record in caplog.records if record.levelname != "INFO"] == []
        reasons[:] = [
            str(record.args[1]) for record in caplog.records if "delta-rs cannot" in record.msg and record.args
        ]  # type: ignore[index]  # why: the record's values are a tuple
        assert_equal_to_source(ctx, database, "a")
        (writer,) = {line.partition(":")[0] for line in commits(ctx, before) if line.endswith("MERGE")}
        return writer

    assert writer_after(lambda: None) == "delta-rs"
    assert writer_after(lambda: alter("SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'TRUE')")) == "Apache-Spark"
    with monkeypatch.context() as patched:
        assert writer_after(lambda: patched.setattr(os, "link", no_links)) == "Apache-Spark"
    assert (writer_after(clone), reasons) == ("Apache-Spark", ["it does not write files of another table"])
    feature = "SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')"
    expected = "it does not write files of another table, vacuumProtocolCheck"
    assert (writer_after(lambda: alter(feature)), reasons) == ("Apache-Spark", [expected])
    assert (writer_after(lambda: None), reasons) == ("Apache-Spark", [])


@pytest.mark.parametrize("silver_settings", [{"engine": "spark"}, {"engine": "auto", "deletes": "hard"}])
def test_the_engine_is_a_setting_and_hard_deletes_keep_no_value(
    ctx: JobContext, database: Db, silver_settings: dict[str, Any]
) -> None:
    chosen = with_silver(ctx, **silver_settings)
    before = ctx.tables.version(_TABLE)
    database.a.delete_one({"_id": 3})
    database.a.update_one({"_id": 4}, {"$set": {"n": -1}})
    land(chosen)
    is_here = silver_settings["engine"] == "auto"
    assert ("delta-rs: MERGE" in commits(ctx, before)) == is_here
    assert_equal_to_source(chosen, database, "a")
    kept = silver(ctx, "a").where("_key = '3' AND _deleted AND n IS NOT NULL").count()
    assert kept == (0 if is_here else 1)


def sorted_events(increment: BronzeIncrement) -> BronzeIncrement:
    return replace(increment, events=tuple(sorted(increment.events, key=lambda event: event.position)))


@pytest.mark.parametrize("most_bytes", [0, 1 << 20], ids=["many rows", "few rows"])
def test_the_increment_is_the_one_that_spark_finds(
    ctx: JobContext, database: Db, mongo: MongoClient[Any], monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    """Changes of a transaction, drops, renames, creations, and the READs of a snapshot."""
    monkeypatch.setattr(bronze_rows, "_FEW_BYTES", most_bytes)
    table = bronze_table("test")
    after = ctx.tables.version(table)
    database.a.insert_one({"_id": 10, "n": 1})
    database.b.insert_one({"_id": 1})
    with mongo.start_session() as session, session.start_transaction():
        database.a.update_many({}, {"$inc": {"n": 1}}, session=session)
        database.b.delete_one({"_id": 1}, session=session)
    run_capture(ctx, once=True)
    direct = tables_here(ctx.settings)
    assert direct is not None
    small = BronzeRows.read(direct, table, after, ctx.tables.version(table))
    assert small is not None
    assert (small.few is None) == (most_bytes == 0)
    assert set(small.increment.changed) == {Namespace(database.name, name) for name in "ab"}
    assert small.increment.reach.ends_outside_transaction
    database.c.insert_one({"_id": 1})
    database.c.rename("d")
    database.b.drop()
    run_capture(ctx, once=True)
    through = ctx.tables.version(table)
    for since in (-1, after):
        here = BronzeRows.read(direct, table, since, through)
        assert here is not None
        by_spark = BronzeIncrement.read(ctx.tables, table, since, through)
        assert sorted_events(here.increment) == sorted_events(by_spark)
        assert len(here.increment.ended_names) == 2
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "d")


def test_four_runs_at_once_end_as_one_does(ctx: JobContext, database: Db) -> None:
    database.a.update_many({}, {"$inc": {"n": 1}})
    database.a.insert_many([{"_id": f"more {number}", "n": 1} for number in range(20)])
    run_capture(ctx, once=True)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run_silver, ctx) for _ in range(4)]:
            done.result()
    assert_equal_to_source(ctx, database, "a")
    assert run_silver(ctx) == []


# promise 3
@pytest.mark.skipif(PLACE == "s3", reason="commits to S3 are conditional: no writer replaces one")
def test_a_commit_that_a_foreign_program_replaces_after_the_run_is_merged_again_by_the_next_one(
    ctx: JobContext, database: Db, tmp_path: Path
) -> None:
    database.a.insert_one({"_id": "lost", "n": 1})
    land(ctx)
    commit = tmp_path / "silver" / "a" / commit_name(ctx.tables.version(_TABLE))
    commit.write_text(json.dumps({"commitInfo": {"operation": "OPTIMIZE", "engineInfo": "another/1"}}) + "\n")
    assert len(run_silver(ctx)) == 1
    assert_equal_to_source(ctx, database, "a")
