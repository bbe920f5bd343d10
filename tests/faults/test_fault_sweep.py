"""The whole way from source to silver, ended before and after each of its commits, one after the other. One line is printed for each."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from crashing import Crash, CrashingTables
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, spark_pipeline
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from pipelines.jobs.capture import run_capture
from pipelines.jobs.context import JobContext
from pipelines.jobs.silver import run_silver

Db = Database[dict[str, Any]]


def whole_way(ctx: JobContext) -> None:
    run_capture(ctx, once=True)
    run_silver(ctx)


def change(database: Db) -> None:
    database.a.update_many({"_id": {"$lt": 5}}, {"$set": {"n": 1.5}, "$push": {"list": "x"}})
    database.a.delete_one({"_id": 7})
    database.b.drop()
    database.b.insert_one({"_id": 1, "again": True})
    database.a.rename("c")


# promises 1 and 2; scenario: E01, E02, E03, E05
@pytest.mark.long
def test_the_whole_way_survives_its_end_at_every_commit(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = 0
    for number in count(1):
        for after in (0, 1):
            name = f"sweep_{number}_{after}"
            try:
                ended = end_at(spark, mongo_uri, mongo[name], tmp_path / name, number, after)
            finally:
                mongo.drop_database(name)
            if ended is None:
                assert points > 20, "the way has become shorter than the sweep: look whether commits escape it"
                return
            points += 1
            with capsys.disabled():
                sys.stdout.write(f"{'after ' if after else 'before'} commit {number:2}, {ended}\n")


def end_at(spark: SparkSession, uri: str, database: Db, root: Path, number: int, after: int) -> str | None:
    """What the commit was and what was found behind it; None where there is none of that number."""
    ctx = spark_pipeline(spark, uri, database.name, root, snapshot_max_threads=1, mode="change_streams")
    tables = CrashingTables(spark, ctx.tables.lake, {"left": number, "after": after})
    ending = JobContext(ctx.settings, spark, tables)
    for name in ("a", "b"):
        database[name].insert_many([{"_id": identifier, "list": []} for identifier in range(10)])
    changed = False
    try:
        whole_way(ending)
        changed = True
        change(database)
        whole_way(ending)
        return None
    except Crash:
        if not changed:
            change(database)
    whole_way(ctx)
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, database, "a", "b", "c")
    version = ctx.tables.version(ctx.tables.names("silver")[0])
    whole_way(ctx)
    assert ctx.tables.version(ctx.tables.names("silver")[0]) == version, "what was healed is merged again and again"
    return f"{tables.ended[0]}: silver equals the source, {bronze(ctx).where('batch IS NOT NULL').count()} streamed rows, each once"
