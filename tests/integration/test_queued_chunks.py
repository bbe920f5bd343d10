"""Changes at the source while snapshot chunks wait for their lane."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, land, pipeline
from processes import wait_until
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from stream_reading import failing, needs_failpoints

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.capture.stream_loop import CaptureResult
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import tables_here
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.report import list_snapshots
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table

Db = Database[dict[str, Any]]
Mongo = MongoClient[dict[str, Any]]
BRONZE = bronze_table("test")
_DELAY = 5


def control_rows(ctx: JobContext, kind: str) -> int:
    """Return the number of control rows of type *kind* in bronze."""
    tables = tables_here(ctx.settings) or ctx.tables  # the first query of a JVM takes longer than a snapshot waits
    if not tables.exists(BRONZE):
        return 0
    wanted = Query(BRONZE).select("batch").where(("op", "=", "snapshot"), ("operation_type", "=", kind))
    return len(tables.query(wanted))


def read(ctx: JobContext) -> Counter[str]:
    return Counter(row["collection"] for row in bronze(ctx).where("op = 'r'").select("collection").collect())


@contextmanager
def capturing(ctx: JobContext) -> Iterator[list[CaptureResult]]:
    """Run a capture during the block. The list gets its result at the end."""
    stop, results = threading.Event(), list[CaptureResult]()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_capture, ctx, stop=stop)
        try:
            yield results
        finally:
            stop.set()
        results.append(running.result(60))


def test_a_snapshot_waits_before_it_begins_and_the_stream_does_not(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.a.insert_many([{"_id": number} for number in range(5)])
    endless = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_delay_ms=600_000)
    with capturing(endless) as results:
        wait_until(lambda: control_rows(endless, "plan"))
        database.a.update_one({"_id": 1}, {"$set": {"n": 1}})
        database.a.delete_one({"_id": 2})
        wait_until(lambda: bronze(endless).where("op IN ('u', 'd')").count() == 2)
        stopped = time.monotonic()
    assert time.monotonic() - stopped < 30, "a capture that waits cannot be stopped"
    assert results[0].documents == 0
    assert list_snapshots(endless)[0].state == "running"

    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_delay_ms=_DELAY * 1000)
    began = time.monotonic()
    assert run_capture(ctx, once=True).documents == 4, "a run to the end waits for it"
    assert time.monotonic() - began >= _DELAY
    run_silver(ctx)
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, database, "a")


# scenario: H03
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_collection_that_is_made_anew_while_its_chunks_are_queued_is_read_as_if_it_had_moved(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, again: bool
) -> None:
    for name in "ab":
        database[name].insert_many([{"_id": number, "life": 1} for number in range(600)])
    if again:  # the snapshot sweeps
        land(pipeline(spark, mongo_uri, database.name, tmp_path))
    before = read(pipeline(spark, mongo_uri, database.name, tmp_path)) if again else Counter[str]()
    quick = {"snapshot_delay_ms": _DELAY * 1000, "snapshot_chunk_size": 200, "snapshot_max_threads": 2}
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_mode="always" if again else "initial", **quick)
    with capturing(ctx):
        wait_until(lambda: control_rows(ctx, "plan") == 1 + again)
        database.a.drop()
        database.a.insert_many([{"_id": number, "life": 2} for number in (1, 2, 9_000)])
        wait_until(lambda: control_rows(ctx, "completed") == 1 + again)
    assert read(ctx) - before == {"a": 3, "b": 600}
    assert control_rows(ctx, "discarded") == 0
    run_capture(pipeline(spark, mongo_uri, database.name, tmp_path), once=True)
    run_silver(ctx)
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, database, "a", "b")


# scenario: H03
@needs_failpoints
@pytest.mark.parametrize("engine", ["native", pytest.param("spark", marks=pytest.mark.long)])
def test_a_collection_that_is_made_anew_while_a_chunk_is_in_hand_is_read_as_if_it_had_moved(
    spark: SparkSession, mongo: Mongo, mongo_uri: str, database: Db, tmp_path: Path, engine: Literal["native", "spark"]
) -> None:
    database.a.insert_many([{"_id": number, "life": 1} for number in range(600)])
    quick = {"snapshot_chunk_size": 200, "snapshot_max_threads": 1}
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, engine=engine, **quick)
    with failing(mongo, "find", "alwaysOn", blockConnection=True, blockTimeMS=3000) as entered, capturing(ctx):
        mongo.admin.command("waitForFailPoint", "failCommand", timesEntered=entered + 1, maxTimeMS=90_000)
        database.a.drop()
        database.a.insert_many([{"_id": number, "life": 2} for number in (1, 2, 9_000)])
        wait_until(lambda: control_rows(ctx, "completed"))
    assert read(ctx) == {"a": 3}
    assert control_rows(ctx, "discarded") == 0
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, database, "a")
