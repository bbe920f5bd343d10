"""Views, time series and collections outside of the filters, read whole by schedule. The tests move the clock."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import bson
import pytest
from lakehouse import settings_for, spark_pipeline
from processes import wait_until
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_refused import WITHOUT_SPARK

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, LazyContext, open_capture_without_spark
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.operations.scheduled_status import scheduled_status
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.report import list_snapshots, verify_snapshot
from strandline.jobs.snapshot.run import SnapshotRun
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.query import Query
from strandline.model.table_schemas import READ_CAPPED, bronze_table
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
pytestmark = WITHOUT_SPARK
_HOUR = 3_600_000_000
_TOTALS = [{"$group": {"_id": "$shop", "total": {"$sum": "$n"}}}]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.us = time.time_ns() // 1000

    def __call__(self) -> int:
        return self.us

    def move(self, hours: float = 1) -> None:
        self.us += int(hours * _HOUR)


def no_spark() -> NoReturn:
    raise AssertionError("Spark would have been started")


def opened(uri: str, db: Db, root: Path, scheduled: dict[str, Any], **capture: Any) -> DeltaRsContext:
    by_name = {f"{db.name}.{name}": schedule for name, schedule in scheduled.items()}
    ctx = open_capture_without_spark(settings_for(uri, db.name, root / "lake", scheduled=by_name, **capture))
    assert ctx is not None
    return ctx


def capture(ctx: DeltaRsContext, clock: Callable[[], int]) -> int:
    """Capture once, and return the number of snapshot rows."""
    return run_capture(ctx, once=True, now_us=clock).documents


def without_spark(ctx: DeltaRsContext) -> LazyContext:
    return LazyContext(ctx.settings, ctx.tables, no_spark)


def rows(ctx: DeltaRsContext, name: str) -> Counter[str]:
    """Return the number of bronze rows of a collection, by ``op``."""
    of_name = Query(bronze_table("test")).where(("collection", "=", name), ("op", "<>", "snapshot"))
    return Counter(row["op"] for row in ctx.tables.query(of_name.select("op")))


def silver(ctx: DeltaRsContext, name: str) -> dict[str, dict[str, Any] | None]:
    """Return the document of each row by key. None: a tombstone."""
    table = ctx.tables.folder(TableName("silver", name)).table()
    found = table.to_pyarrow_table(columns=["_key", "_deleted", "_document"]).to_pylist()
    return {row["_key"]: None if row["_deleted"] else bson.decode(row["_document"]) for row in found}


def source(db: Db, name: str) -> dict[str, dict[str, Any]]:
    return {document_merge_key(bson.encode(document)): document for document in db[name].find()}


def problem(ctx: DeltaRsContext) -> str | None:
    (state,) = scheduled_status(ctx)
    return state.problem


@pytest.fixture
def shop(database: Db) -> Db:
    """Four orders in two shops, the view ``totals`` of them by shop, and the time series ``ts``."""
    database.orders.insert_many([{"_id": number, "shop": "ab"[number % 2], "n": number} for number in range(4)])
    database.command("create", "totals", viewOn="orders", pipeline=_TOTALS)
    database.create_collection("ts", timeseries={"timeField": "at", "metaField": "sensor"})
    database.ts.insert_many([{"at": datetime(2026, 1, day, tzinfo=UTC), "sensor": 1, "v": day} for day in (1, 2, 3)])
    return database


# promise 2
def test_a_view_and_a_time_series_are_read_when_due_and_only_differences_are_written(
    mongo_uri: str, shop: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hourly, clock = {"every": "1h"}, Clock()
    ctx = opened(mongo_uri, shop, tmp_path, {"totals": hourly, "ts": hourly})
    with caplog.at_level(logging.WARNING, "strandline"):
        assert capture(ctx, clock) == 4 + 2 + 3
    assert caplog.messages == []
    run_silver(without_spark(ctx))
    assert (silver(ctx, "totals"), silver(ctx, "ts")) == (source(shop, "totals"), source(shop, "ts"))
    shop.orders.delete_many({"shop": "b"})
    shop.orders.update_one({"_id": 2}, {"$inc": {"n": 5}})
    shop.orders.insert_one({"_id": 9, "shop": "c", "n": 9})
    assert capture(ctx, clock) == 0, "it is not due"
    clock.move(0.9)
    assert capture(ctx, clock) == 0
    run_silver(without_spark(ctx))
    assert silver(ctx, "totals") != source(shop, "totals"), "changes between two reads are not seen"
    clock.move(0.2)
    assert capture(ctx, clock) == 3
    assert (rows(ctx, "totals"), rows(ctx, "ts")) == ({"r": 4, "d": 1}, {"r": 3})
    run_silver(without_spark(ctx))
    assert silver(ctx, "totals") == source(shop, "totals") | {'"b"': None}
    for _ in range(2):
        clock.move()
        assert capture(ctx, clock) == 0, "nothing has changed"
    shop.orders.insert_one({"_id": 1, "shop": "b", "n": 1})
    clock.move()
    assert capture(ctx, clock) == 1, "a document that comes back is written again"
    run_silver(without_spark(ctx))
    assert silver(ctx, "totals") == source(shop, "totals")
    assert [(state.documents, state.written, state.problem) for state in scheduled_status(ctx)] == [
        (3, 1, None),
        (3, 0, None),
    ]
    assert show_offset(ctx).left_out is None


def test_a_key_of_several_fields_identifies_documents_without_an_id(mongo_uri: str, shop: Db, tmp_path: Path) -> None:
    pipeline = [{"$project": {"_id": 0, "in": {"shop": "$shop"}, "n": 1, "x": {"$literal": "x"}}}]
    shop.command("create", "flat", viewOn="orders", pipeline=pipeline)
    ctx, clock = opened(mongo_uri, shop, tmp_path, {"flat": {"every": "1h", "key": ["in.shop", "n"]}}), Clock()
    capture(ctx, clock)
    shop.orders.delete_one({"_id": 3})
    clock.move()
    assert capture(ctx, clock) == 1
    run_silver(without_spark(ctx))
    assert silver(ctx, "flat") == {
        '{"in.shop": "a", "n": 0}': {"in": {"shop": "a"}, "n": 0, "x": "x"},
        '{"in.shop": "b", "n": 1}': {"in": {"shop": "b"}, "n": 1, "x": "x"},
        '{"in.shop": "a", "n": 2}': {"in": {"shop": "a"}, "n": 2, "x": "x"},
        '{"in.shop": "b", "n": 3}': None,
    }


def test_a_read_that_cannot_be_used_writes_nothing_and_the_capture_goes_on(
    mongo_uri: str, shop: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    views: dict[str, list[dict[str, Any]]] = {
        "missing": [{"$project": {"_id": 0, "n": 1}}],
        "repeated": [],
        "array": [{"$set": {"_id": ["$_id"]}}],
        "failing": [{"$set": {"x": {"$divide": [1, "$n"]}}}],
    }
    told = {
        "missing": "has no usable key ['_id']: a document has no field _id",
        "repeated": "has no usable key ['shop']: two documents have the same key",
        "array": "has no usable key ['_id']: the field _id is an array in a document",
        "failing": "MongoDB refused reading",
        "absent": "does not exist",
    }
    for name, stages in views.items():
        shop.command("create", name, viewOn="orders", pipeline=stages)
    scheduled = {name: {"every": "1h", "key": ["shop" if name == "repeated" else "_id"]} for name in told}
    ctx, clock = opened(mongo_uri, shop, tmp_path, scheduled), Clock()
    with caplog.at_level(logging.WARNING, "strandline.snapshot"):
        assert capture(ctx, clock) == 4, "the orders"
    lines = sorted(record.getMessage() for record in caplog.records if record.name == "strandline.snapshot")
    problems = {state.collection.partition(".")[2]: state.problem or "" for state in scheduled_status(ctx)}
    for line, (name, reason) in zip(lines, sorted(told.items()), strict=True):
        assert line.startswith(f"{shop.name}.{name} is not read: ")
        assert reason in line
        assert reason in problems[name]
        assert rows(ctx, name) == {}
    for name in ("array", "failing"):
        shop.drop_collection(name)
        shop.command("create", name, viewOn="orders", pipeline=[{"$set": {"one": 1}}])
    assert capture(ctx, clock) == 0, "it is read when it is due"
    clock.move()
    assert capture(ctx, clock) == 4 + 4
    run_silver(without_spark(ctx))
    assert silver(ctx, "array") == silver(ctx, "failing") == source(shop, "failing")


def test_documents_that_the_server_cannot_read_at_a_cluster_time_say_so(
    mongo_uri: str, shop: Db, tmp_path: Path
) -> None:
    shop.create_collection("ring", capped=True, size=100_000)
    shop.ring.insert_one({"_id": 1})
    shop.command("create", "of_ring", viewOn="ring", pipeline=[])
    ctx = opened(mongo_uri, shop, tmp_path, {"of_ring": {"every": "1h"}, "totals": {"every": "1h"}})
    capture(ctx, Clock())
    reads = Query(bronze_table("test")).where(("op", "=", "r"), ("collection", "in", ("of_ring", "totals")))
    found = ctx.tables.query(reads.select("collection", "operation_type"))
    assert {(row["collection"], row["operation_type"]) for row in found} == {
        ("of_ring", READ_CAPPED if shop.client.server_info()["versionArray"] < [8] else "read"),
        ("totals", "read"),
    }


def test_a_read_that_is_refused_later_leaves_the_rows_as_they_were(mongo_uri: str, shop: Db, tmp_path: Path) -> None:
    ctx, clock = opened(mongo_uri, shop, tmp_path, {"totals": {"every": "1h"}}), Clock()
    capture(ctx, clock)
    before = source(shop, "totals")
    shop.drop_collection("totals")
    clock.move()
    assert capture(ctx, clock) == 0
    run_silver(without_spark(ctx))
    assert silver(ctx, "totals") == before
    assert problem(ctx) == f"{shop.name}.totals does not exist"


def test_a_crash_before_or_after_the_commit_of_a_read_repeats_no_row(
    mongo_uri: str, shop: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, clock = opened(mongo_uri, shop, tmp_path, {"totals": {"every": "1h"}}), Clock()
    capture(ctx, clock)
    for step in ("_read_chunk", "commit_completion"):
        shop.orders.update_one({"_id": 0}, {"$inc": {"n": 1}})
        clock.move()
        monkeypatch.setattr(SnapshotRun, step, crash)
        with pytest.raises(KeyboardInterrupt):
            capture(ctx, clock)
        monkeypatch.undo()
        capture(ctx, clock)
    assert rows(ctx, "totals") == {"r": 4}
    run_silver(without_spark(ctx))
    assert silver(ctx, "totals") == source(shop, "totals")


def crash(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


def test_a_lasting_capture_reads_when_the_time_comes_and_at_a_signal(mongo_uri: str, shop: Db, tmp_path: Path) -> None:
    ctx, clock, stop = opened(mongo_uri, shop, tmp_path, {"totals": {"every": "1h"}}), Clock(), threading.Event()
    thread = threading.Thread(target=run_capture, args=(ctx,), kwargs={"stop": stop, "now_us": clock})
    thread.start()
    try:
        wait_until(lambda: ctx.tables.exists(bronze_table("test")) and rows(ctx, "totals") == {"r": 2})
        shop.orders.update_one({"_id": 0}, {"$inc": {"n": 1}})
        clock.move()
        wait_until(lambda: rows(ctx, "totals") == {"r": 3})
        shop.orders.update_one({"_id": 0}, {"$inc": {"n": 1}})
        send_signal(ctx, "execute-snapshot", {"data-collections": [f"{shop.name}[.]totals"]}, by="ops")
        wait_until(lambda: rows(ctx, "totals") == {"r": 4})
    finally:
        stop.set()
        thread.join()


def test_a_snapshot_of_everything_leaves_scheduled_rows_to_their_reads(
    mongo_uri: str, shop: Db, tmp_path: Path
) -> None:
    ctx, clock = opened(mongo_uri, shop, tmp_path, {"totals": {"every": "1h"}}, signal_poll_interval_ms=1), Clock()
    capture(ctx, clock)
    send_signal(ctx, "execute-snapshot", {"data-collections": [f"{shop.name}[.]orders"]}, by="ops")
    capture(ctx, clock)
    run_silver(without_spark(ctx))
    assert silver(ctx, "totals") == source(shop, "totals")
    shop.orders.delete_many({"shop": "b"})
    send_signal(ctx, "execute-snapshot", {"data-collections": [".*"]}, by="ops")
    assert capture(ctx, clock) == 2 + 1
    assert [(state.kind, state.collections) for state in list_snapshots(ctx)] == [
        ("incremental", 2),
        ("incremental", 1),
        ("initial", 1),
    ]
    assert all(check.holds for check in verify_snapshot(ctx))
    assert rows(ctx, "totals") == {"r": 2, "d": 1}


# promise 3
def test_a_removed_line_leaves_the_rows_while_the_view_exists_and_they_go_on_when_it_comes_back(
    mongo_uri: str, shop: Db, tmp_path: Path
) -> None:
    line, clock = {"totals": {"every": "1h"}}, Clock()
    ctx = opened(mongo_uri, shop, tmp_path, line)
    capture(ctx, clock)
    run_silver(without_spark(ctx))
    before = silver(ctx, "totals")
    removed = opened(mongo_uri, shop, tmp_path, {}, signal_poll_interval_ms=1)
    shop.orders.insert_one({"_id": 9, "shop": "c", "n": 9})
    send_signal(removed, "execute-snapshot", {"data-collections": [".*"]}, by="ops")
    clock.move()
    capture(removed, clock)
    own = [f"{shop.name}.totals"]  # a sweep of other collections needs Spark
    run_silver(without_spark(removed), collections=own)
    assert silver(removed, "totals") == before, "a list of all collections has views, too"
    assert list(scheduled_status(removed)) == []
    assert capture(ctx, clock) == 1
    run_silver(without_spark(ctx), collections=own)
    assert silver(ctx, "totals") == source(shop, "totals")


def test_rows_that_silver_has_ended_are_written_again_when_the_view_is_read_again(
    mongo_uri: str, shop: Db, tmp_path: Path
) -> None:
    """As after the line was removed, and the view dropped while nothing was captured."""
    ctx, clock = opened(mongo_uri, shop, tmp_path, {"totals": {"every": "1h"}}), Clock()
    capture(ctx, clock)
    removed = opened(mongo_uri, shop, tmp_path, {}, collection_exclude_list=f"{shop.name}[.]totals")
    shop.drop_collection("totals")
    send_signal(removed, "execute-snapshot", {"data-collections": [".*"]}, by="ops")
    capture(removed, clock)
    shop.command("create", "totals", viewOn="orders", pipeline=_TOTALS)
    clock.move()
    assert capture(ctx, clock) == 2
    clock.move()
    assert capture(ctx, clock) == 0


def test_a_captured_collection_is_refused_and_one_that_the_filters_leave_out_is_read(
    mongo_uri: str, shop: Db, tmp_path: Path
) -> None:
    ctx, clock = opened(mongo_uri, shop, tmp_path, {"orders": {"every": "1h"}}), Clock()
    with pytest.raises(ConfigurationError, match=r"orders, which has a change stream and is captured by it"):
        capture(ctx, clock)
    excluding = opened(
        mongo_uri,
        shop,
        tmp_path,
        {"orders": {"every": "1h"}},
        collection_exclude_list=f"{shop.name}[.](orders|ts|totals)",
    )
    assert capture(excluding, clock) == 4
    shop.orders.delete_one({"_id": 1})
    clock.move()
    assert capture(excluding, clock) == 1
    run_silver(without_spark(excluding))
    assert silver(excluding, "orders") == source(shop, "orders") | {"1": None}


def test_reconcile_leaves_scheduled_collections_out(mongo_uri: str, shop: Db, tmp_path: Path) -> None:
    ctx = opened(mongo_uri, shop, tmp_path, {"totals": {"every": "1h"}})
    capture(ctx, Clock())
    run_silver(without_spark(ctx))
    assert [result.collection for result in run_reconcile(without_spark(ctx)).collections] == [f"{shop.name}.orders"]
    with pytest.raises(ConfigurationError, match="is read by schedule, and each read compares it as a whole"):
        run_reconcile(without_spark(ctx), collections=[f"{shop.name}.totals"])


# why long: half a minute by Spark
@pytest.mark.long
def test_spark_reads_and_writes_the_same_rows(spark: SparkSession, mongo_uri: str, shop: Db, tmp_path: Path) -> None:
    scheduled = {f"{shop.name}.totals": {"every": "1h"}, f"{shop.name}.ts": {"every": "1h", "key": ["ts"]}}
    ctx = spark_pipeline(spark, mongo_uri, shop.name, tmp_path, scheduled=scheduled, snapshot_mode="no_data")
    clock = Clock()
    assert run_capture(ctx, once=True, now_us=clock).documents == 2
    shop.orders.delete_many({"shop": "b"})
    clock.move()
    assert run_capture(ctx, once=True, now_us=clock).documents == 1
    states = [(state.written, state.problem) for state in scheduled_status(ctx)]
    assert states[0] == (1, None)
    assert "has no usable key ['ts']" in (states[1][1] or "")
