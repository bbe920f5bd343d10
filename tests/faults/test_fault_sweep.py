"""Crash before and after each commit between source and silver. The test report has one line per crash."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from crashing import Crash, CrashingTables
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, pipeline
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]

_PARTS = 3
"""Number of tests. Each test crashes at every third commit."""


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
@pytest.mark.sweep
@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize(
    ("engine", "of"), [("spark", ""), ("native", "test")], ids=["spark", "native"]
)  # which writes bronze.test alone
def test_the_whole_way_survives_its_end_at_every_commit(
    spark: SparkSession,
    mongo_uri: str,
    mongo: MongoClient[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    engine: str,
    of: str,
    part: int,
) -> None:
    for number in count(1 + part, _PARTS):
        for after in (0, 1):
            name = f"sweep_{engine}_{number}_{after}"
            try:
                ctx = pipeline(
                    spark,
                    mongo_uri,
                    name,
                    tmp_path / name,
                    snapshot_max_threads=1,
                    mode="change_streams",
                    engine=engine,
                )
                with monkeypatch.context() as patched:
                    ended = end_at(ctx, mongo[name], number, after, of, patched)
            finally:
                mongo.drop_database(name)
                shutil.rmtree(tmp_path / name, ignore_errors=True)
            if ended is None:
                assert number > (6 if of else 36), (
                    "the way has become shorter than the sweep: look whether commits escape it"
                )
                return
            record_property("found", f"{engine:6} {'after ' if after else 'before'} commit {number:2}, {ended}")


def end_at(ctx: JobContext, database: Db, number: int, after: int, of: str, patched: pytest.MonkeyPatch) -> str | None:
    """Crash at one commit, run everything again, and describe the result. None: there is no commit of that number.

    Args:
        number: Number of the commit, among commits to tables with *of* in their name.
        after: 1: crash after the commit. 0: before it.
    """
    tables = CrashingTables(ctx.spark, ctx.tables.lake, {"left": number, "after": after}, of=of)
    tables.counts_native_commits(patched)
    ending = JobContext(ctx.settings, ctx.spark, tables)
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
    patched.undo()
    whole_way(ctx)
    assert_streamed_exactly_once(ctx)
    seen = ctx.tables.exists(TableName("silver", "a"))  # not where it was renamed before anybody looked
    assert_equal_to_source(ctx, database, "b", "c", *(["a"] if seen else []))
    version = ctx.tables.version(ctx.tables.names("silver")[0])
    whole_way(ctx)
    assert ctx.tables.version(ctx.tables.names("silver")[0]) == version, "what was healed is merged again and again"
    streamed = bronze(ctx).where("batch IS NOT NULL").count()
    return f"{tables.ended[0]}: silver equals the source, {streamed} streamed rows, each once"
