"""Cost of an idle source, and of a new collection in an old lake."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, bronze, land, pipeline, silver
from processes import wait_until
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.reads import ReadWatch
from strandline.control.cuts import cuts
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.run import run_continuously
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.gap import GAPS_PROPERTY
from strandline.model.table_schemas import CUTS, bronze_table
from strandline.model.tables import TableName
from strandline.silver.progress_index import ProgressIndex

Db = Database[dict[str, Any]]
BRONZE = bronze_table("test")


def progress_index_of(ctx: JobContext) -> ProgressIndex:
    return ProgressIndex.read(ctx.tables, BRONZE)


def heartbeat(ctx: JobContext, database: Db) -> None:
    """Commit one heartbeat to bronze: a change in another database moves the resume token on."""
    database.client[f"{database.name}_other"].a.insert_one({})
    run_capture(ctx, once=True)


def test_an_idle_run_commits_heartbeats_and_nothing_else(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.orders.insert_one({"_id": 1})
    land(ctx)
    stop = threading.Event()
    running = threading.Thread(
        target=lambda: run_continuously(
            ctx, lambda: ctx, stop, report=lambda _what, _count: None, silver_report=lambda _result: None
        )
    )
    running.start()
    try:
        database.orders.insert_one({"_id": 2})
        wait_until(lambda: silver(ctx, "orders").count() == 2)
        time.sleep(5)  # the cut of this run, and the start of the next one
        before = ctx.tables.version(BRONZE)
        others = {name: ctx.tables.version(name) for name in (CUTS, TableName("silver", "orders"))}
        for _ in range(8):
            database.client[f"{database.name}_other"].a.insert_one({})
            time.sleep(0.5)
        wait_until(lambda: ctx.tables.version(BRONZE) >= before + 4)
        time.sleep(3)
        assert {name: ctx.tables.version(name) for name in others} == others
        assert progress_index_of(ctx).complete_through < ctx.tables.version(BRONZE)
        database.orders.insert_one({"_id": 3})
        wait_until(lambda: silver(ctx, "orders").count() == 3)
    finally:
        stop.set()
        running.join()
    assert bronze(ctx).where(F.col("op") == "heartbeat").count() >= 4
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "orders")


@pytest.mark.long
def test_idle_runs_rarely_store_the_progress_index(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.silver.progress_index._MAX_COMMITS_WITHOUT_NEWS", 3)
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.orders.insert_one({"_id": 1})
    land(ctx)
    commits = []
    for _ in range(4):
        heartbeat(ctx, database)
        before = ctx.tables.version(CUTS)
        assert run_silver(ctx) == []
        commits.append(ctx.tables.version(CUTS) - before)
    assert commits == [0, 0, 1, 0]
    assert [cut.number for cut in cuts(ctx.tables, limit=10)] == [1]
    assert run_reconcile(ctx, wait_seconds=0).collections[0].differences == 0, "a lagging progress index hides no row"
    database.orders.insert_one({"_id": 2})
    land(ctx)
    assert [cut.bronze_version for cut in cuts(ctx.tables, limit=1)] == [ctx.tables.version(BRONZE)]
    assert progress_index_of(ctx).complete_through == ctx.tables.version(BRONZE)
    assert_equal_to_source(ctx, database, "orders")


@pytest.mark.skipif(sys.platform != "linux", reason="inotify, which counts the files that are read, is Linux's")
@pytest.mark.long
def test_a_new_collection_reads_no_old_files_of_bronze(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    for number in range(3):
        database.orders.insert_one({"_id": number})
        land(ctx)
    database.create_collection("gone").drop()
    land(ctx)
    ctx.tables.set_properties(BRONZE, {GAPS_PROPERTY: json.dumps([{"after": "", "before": "0"}])})
    land(ctx)
    folder = tmp_path / "bronze" / BRONZE.name
    old = set(folder.glob("*.parquet"))
    assert len(old) >= 8

    def files_read(collection: str) -> int:
        database[collection].insert_one({"_id": 1})
        run_capture(ctx, once=True)
        with ReadWatch(folder) as reads:
            run_silver(ctx)
        assert_equal_to_source(ctx, database, collection)
        return len(reads.files & old)

    assert files_read("fresh") == 0
    assert files_read("gone") > 0, (
        "a name that was dropped before reads all of bronze: rows of its earlier incarnation may come late"
    )
