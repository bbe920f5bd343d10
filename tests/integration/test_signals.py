"""Signals to a running capture: start, pause and stop snapshots, by table row, file line or source document."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from crashing import Crash, CrashingTables
from lake_place import PLACE
from lakehouse import (
    assert_equal_to_source,
    assert_streamed_exactly_once,
    bronze,
    documents_in_silver,
    pipeline,
    spark_pipeline,
)
from processes import wait_until
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from stream_reading import failing, needs_failpoints

from strandline.control.signal_inbox import send
from strandline.errors import ConfigurationError
from strandline.jobs.capture import signal_handler
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.capture.stream_loop import CaptureResult
from strandline.jobs.context import JobContext
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.report import list_snapshots, verify_snapshot
from strandline.jobs.snapshot.send_signal import conditions_of, send_signal
from strandline.model.signal import Signal
from strandline.model.table_schemas import NOTIFICATIONS, SIGNALS, bronze_table
from strandline.source.client import Collection
from strandline.source.errors import CredentialsRefused

Db = Database[dict[str, Any]]
Mongo = MongoClient[dict[str, Any]]
BOTH = ("table", "log")
_FIRST_ENGINE = "spark" if PLACE == "hdfs" else "native"  # delta-rs does not reach HDFS


def ask(ctx: JobContext, kind: str, **data: Any) -> str:
    return str(send_signal(ctx, kind, {name.replace("_", "-"): value for name, value in data.items()}, by="ops").id)


def ask_raw(ctx: JobContext, *signals: tuple[str, str | None, str | None]) -> None:
    """Insert signals in this order without a check, as a user of SQL would."""
    start = datetime.now(UTC)
    rows = [
        Signal(key, kind, data, start + timedelta(milliseconds=number), "sql")
        for number, (key, kind, data) in enumerate(signals)
    ]
    send(ctx.tables, "test", rows)


def told(ctx: JobContext) -> list[tuple[str, str, str, dict[str, Any]]]:
    rows = ctx.tables.read(NOTIFICATIONS).orderBy("timestamp").collect()
    return [(row["id"], row["aggregate_type"], row["type"], json.loads(row["additional_data"])) for row in rows]


def acted(ctx: JobContext) -> Counter[str]:
    """Return the number of signal rows in bronze, by signal key."""
    return Counter(row["snapshot_id"] for row in bronze(ctx).where("op = 'signal'").collect())


def read(ctx: JobContext) -> Counter[str]:
    return Counter(row["collection"] for row in bronze(ctx).where("op = 'r'").select("collection").collect())


@contextmanager
def capturing(ctx: JobContext) -> Iterator[list[CaptureResult]]:
    """Run a capture in another thread during the block. The list gets its result at the end."""
    stop, results = threading.Event(), list[CaptureResult]()
    running = threading.Thread(target=lambda: results.append(run_capture(ctx, stop=stop)))
    running.start()
    try:
        yield results
    finally:
        stop.set()
        running.join(timeout=60)
    assert results, "the capture failed"


@dataclass
class AnsweredSignals:
    """A lake whose capture got nine signals, each sent twice, before it started."""

    ctx: JobContext
    database: Db
    initial: list[tuple[str, str, str, dict[str, Any]]]
    """Notifications of the initial snapshot."""
    filtered: str
    """Key of the signal for an incremental snapshot of a part of `a`."""
    blocking: str
    """Key of the signal for a blocking snapshot of `b`."""
    documents: list[int]
    """Documents that the two captures after the signals read."""


_WRONG_SIGNALS = (
    ("what", "what", "{}"),
    ("broken", "execute-snapshot", "{"),
    ("code", "execute-snapshot", '{"$where": "sleep(1000)"}'),
    ("operator", "execute-snapshot", '{"n": {"$near": 1}}'),
    ("typeless", "stop-snapshot", "{}"),
    ("early", "pause-snapshot", None),
)


@pytest.fixture(scope="module")
def answered(
    spark: SparkSession, mongo: Mongo, mongo_uri: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnsweredSignals]:
    database = mongo[f"t_{uuid.uuid4().hex[:12]}"]
    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path_factory.mktemp("signals"),
        snapshot_chunk_size=200,
        notification_enabled_channels=BOTH,
    )
    for name in ("a", "b"):
        database[name].insert_many([{"_id": number, "n": number % 4} for number in range(400)])
    run_capture(ctx, once=True)
    run_silver(ctx)
    initial = told(ctx)
    ask_raw(
        ctx,
        ("hello", "log", '{"message": "hello\\nthere"}'),
        *(
            (key, kind, _execute(f"{database.name}.a", data) if key in ("code", "operator") and data else data)
            for key, kind, data in _WRONG_SIGNALS
        ),
    )
    filtered = ask(
        ctx,
        "execute-snapshot",
        data_collections=["nowhere\\..*", "x", f"{database.name}\\.a"],
        additional_conditions=conditions_of([f'{database.name}.a={{"n": 1}}']),
    )
    blocking = ask(ctx, "execute-snapshot", data_collections=[f"{database.name}\\.b"], type="blocking")
    ctx.tables.append(SIGNALS, ctx.tables.read(SIGNALS))  # somebody inserts everything twice
    documents = [run_capture(ctx, once=True).documents for _ in range(2)]
    yield AnsweredSignals(ctx, database, initial, filtered, blocking, documents)
    mongo.drop_database(database.name)


# scenario: N11
@pytest.mark.long
def test_an_initial_snapshot_notifies_its_start_its_end_and_each_collection(answered: AnsweredSignals) -> None:
    kinds = [kind for _, _, kind, _ in answered.initial if kind not in ("IN_PROGRESS", "TABLE_SCAN_COMPLETED")]
    assert kinds == ["STARTED", "COMPLETED"]
    assert {aggregate for _, aggregate, _, _ in answered.initial} == {"Initial Snapshot"}
    scanned = {
        (more["scanned_collection"], more["total_rows_scanned"])
        for _, _, kind, more in answered.initial
        if kind == "TABLE_SCAN_COMPLETED"
    }
    assert scanned == {(f"{answered.database.name}.a", 400), (f"{answered.database.name}.b", 400)}


# scenario: N06
@pytest.mark.long
def test_signals_sent_twice_while_no_capture_ran_are_acted_upon_once_at_the_next_start(
    answered: AnsweredSignals,
) -> None:
    assert answered.documents == [100 + 400, 0]
    keys = {"hello", *(key for key, *_ in _WRONG_SIGNALS), answered.filtered, answered.blocking}
    assert acted(answered.ctx) == dict.fromkeys(keys, 1)


# scenario: N01, N06
@pytest.mark.long
def test_a_wrong_signal_is_skipped_with_its_reason(answered: AnsweredSignals) -> None:
    skipped = [
        (key, more["reason"])
        for key, aggregate, kind, more in told(answered.ctx)
        if (aggregate, kind) == ("Signal", "SKIPPED")
    ]
    assert [key for key, _ in skipped] == [*(key for key, *_ in _WRONG_SIGNALS), answered.filtered, answered.filtered]
    assert {reason for key, reason in skipped if key == answered.filtered} == {
        f"no captured collection matches {pattern}" for pattern in ("nowhere\\..*", "x")
    }
    assert "code 2" in dict(skipped)["operator"] or "BadValue" in dict(skipped)["operator"], skipped


# scenario: U13
@pytest.mark.long
def test_a_signal_with_javascript_is_refused_before_it_is_sent(answered: AnsweredSignals) -> None:
    conditions = conditions_of(['a={"$where": "1"}'])
    with pytest.raises(ConfigurationError, match=r"execute-snapshot: .* uses \$where"):
        ask(answered.ctx, "execute-snapshot", data_collections=["a"], additional_conditions=conditions)


# scenario: N05
@pytest.mark.long
def test_filtered_and_blocking_snapshots_are_listed_and_their_rows_are_marked(answered: AnsweredSignals) -> None:
    kinds = [(aggregate, kind) for key, aggregate, kind, _ in told(answered.ctx) if key == answered.blocking]
    assert (kinds[0], kinds[-1]) == (("Blocking Snapshot", "STARTED"), ("Blocking Snapshot", "COMPLETED"))
    assert [(state.kind, state.state, state.documents) for state in list_snapshots(answered.ctx)] == [
        ("blocking", "completed", 400),
        ("incremental", "completed", 100),
        ("initial", "completed", 800),
    ]
    reads = bronze(answered.ctx).where("op = 'r'").select("collection", "source.snapshot").distinct()
    assert {tuple(row) for row in reads.collect()} == {("a", "true"), ("b", "true"), ("a", "incremental")}


@pytest.mark.long
def test_a_filtered_snapshot_retires_no_document_that_it_left_out(answered: AnsweredSignals) -> None:
    run_silver(answered.ctx)
    assert_equal_to_source(answered.ctx, answered.database, "a", "b")


def _execute(name: str, query: str) -> str:
    return json.dumps(
        {"data-collections": [".*"], "additional-conditions": [{"data-collection": name, "filter": query}]}
    )


# scenario: A21, C01, C03, C04, C09, N04, N09
@pytest.mark.long
def test_an_incremental_snapshot_runs_waits_and_is_cut_short_while_everything_changes(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    quick = {"signal_poll_interval_ms": 100, "snapshot_chunk_size": 200}
    ctx = pipeline(
        spark, mongo_uri, database.name, tmp_path, notification_enabled_channels=BOTH, snapshot_mode="no_data", **quick
    )
    for name in ("a", "b", "c"):
        database[name].insert_many([{"_id": number, "n": 0} for number in range(400)])
    own = pipeline(
        spark, mongo_uri, database.name, tmp_path, notification_enabled_channels=BOTH, snapshot_max_threads=3, **quick
    )
    run_capture(ctx, once=True)
    send(ctx.tables, "test", [])  # the table is there, as it is after the first seconds of a capture
    with capturing(ctx):
        ask_raw(
            ctx,
            ("1", "execute-snapshot", json.dumps({"data-collections": [f"{database.name}\\.[abc]"]})),
            ("2", "pause-snapshot", None),
            ("3", "stop-snapshot", json.dumps({"type": "incremental", "data-collections": [f"{database.name}\\.c"]})),
            ("4", "execute-snapshot", json.dumps({"data-collections": [f"{database.name}\\.b"]})),
        )
        wait_until(lambda: acted(ctx).keys() >= {"1", "2", "3"})
        database.a.update_many({}, {"$inc": {"n": 2000}})
        database.a.insert_many([{"_id": number, "n": 0} for number in range(400, 600)])
        database.b.delete_many({"_id": {"$lt": 100}})
        wait_until(lambda: bronze(ctx).where("op = 'd'").count() == 100)
        assert read(ctx).total() == 0, "a lane did not wait"
        assert list_snapshots(ctx)[0].state == "paused"
    with capturing(own):  # the pause outlives the process; so does what waits behind it
        resumed = ask(own, "resume-snapshot")
        database.a.update_many({}, {"$inc": {"n": 1}})
        database.a.insert_many([{"_id": number, "n": 0} for number in range(600, 800)])
        wait_until(lambda: acted(own)["4"])
        everything = ask(own, "stop-snapshot", type="incremental")
        wait_until(lambda: acted(own)[everything])
    assert acted(ctx) == dict.fromkeys(["1", "2", "3", "4", resumed, everything], 1)
    states = [(state.state, state.kind, state.collections) for state in list_snapshots(ctx)]
    assert states[1] == ("completed", "incremental", 3)
    assert states[0][0] in ("stopped", "completed")  # the second one may be through before it is stopped
    first = list_snapshots(ctx)[1].snapshot_id
    assert {check.collection[-1]: (check.holds, check.stopped > 0) for check in verify_snapshot(ctx, first)} == {
        "a": (True, False),
        "b": (True, False),
        "c": (False, True),
    }
    kinds = {kind for _, _, kind, _ in told(ctx)}
    assert kinds >= {"STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "PAUSED", "RESUMED", "COMPLETED"}
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "b")
    assert_streamed_exactly_once(ctx)
    assert sorted(database.list_collection_names()) == ["a", "b", "c"], "something was written to the source"


class AtPaused(logging.Handler):
    """Return the number of READ rows in bronze at the time of each PAUSED notification."""

    def __init__(self, ctx: JobContext) -> None:
        super().__init__()
        self.ctx, self.reads = ctx, list[int]()

    def emit(self, record: logging.LogRecord) -> None:
        if "PAUSED" in record.args:  # type: ignore[operator]  # why: the arguments of this logger are a tuple
            self.reads.append(read(self.ctx).total())


def _slow_reads(mongo: Mongo) -> AbstractContextManager[int]:
    return failing(mongo, "find", "alwaysOn", blockConnection=True, blockTimeMS=1000)


# scenario: N04, N09
@pytest.mark.check
@needs_failpoints
@pytest.mark.parametrize("engine", [_FIRST_ENGINE, pytest.param("spark", marks=pytest.mark.long)])
def test_a_paused_snapshot_commits_no_chunk_and_counts_its_pause(
    spark: SparkSession,
    mongo: Mongo,
    mongo_uri: str,
    database: Db,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    engine: str,
) -> None:
    quick = {"signal_poll_interval_ms": 100, "snapshot_chunk_size": 20, "snapshot_max_threads": 4, "engine": engine}
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, notification_enabled_channels=BOTH, **quick)
    database.a.insert_many([{"_id": number, "text": "x" * 1000} for number in range(1600)])
    logger, heard = logging.getLogger("strandline.notifications"), AtPaused(ctx)
    logger.addHandler(heard)
    try:
        paused = ask(ctx, "pause-snapshot")  # found while chunks are being read: each takes a second
        with _slow_reads(mongo), caplog.at_level("INFO", logger.name), capturing(ctx):
            wait_until(lambda: ctx.tables.exists(bronze_table("test")) and acted(ctx)[paused])
    finally:
        logger.removeHandler(heard)
    began = time.monotonic()
    assert heard.reads == [read(ctx).total()], "a chunk landed after PAUSED was told"
    assert heard.reads[0] < 1600
    assert list_snapshots(ctx)[0].state == "paused"
    with capturing(ctx):
        time.sleep(1)
        resumed = ask(ctx, "resume-snapshot")
        waited = time.monotonic() - began
        wait_until(lambda: acted(ctx)[resumed])
        wait_until(lambda: list_snapshots(ctx)[0].state == "completed")
    longest = time.monotonic() - began + 60
    ends = {kind: more for _, _, kind, more in told(ctx) if kind in ("RESUMED", "COMPLETED")}
    for seconds in (
        ends["RESUMED"]["paused_seconds"],
        ends["COMPLETED"]["paused_seconds"],
        list_snapshots(ctx)[0].paused_seconds,
    ):
        assert waited <= seconds <= longest
    assert read(ctx) == {"a": 1600}


# scenario: C10, N08, N10
@pytest.mark.long
def test_a_blocking_snapshot_holds_the_stream_and_retires_what_is_gone(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path,
        signal_poll_interval_ms=100,
        snapshot_chunk_size=500,
        skipped_operations=("d",),
    )
    database.a.insert_many([{"_id": number} for number in range(1000)])
    run_capture(ctx, once=True)
    run_silver(ctx)
    database.a.delete_many({"_id": {"$lt": 10}})  # nobody tells of it
    run_capture(ctx, once=True)
    again = pipeline(spark, mongo_uri, database.name, tmp_path, signal_poll_interval_ms=100, snapshot_chunk_size=250)
    asked = ask(again, "execute-snapshot", type="blocking", data_collections=[f'"{database.name}"."a"'])
    with capturing(again):
        wait_until(lambda: acted(again)[asked])
        database.a.insert_many([{"_id": number} for number in range(1000, 3010)])
        wait_until(lambda: bronze(again).where("op = 'c'").count() == 2010)
    completed = (
        bronze(again).where("op = 'snapshot' AND operation_type = 'completed'").agg(F.max("captured_at")).first()
    )
    streamed = bronze(again).where("op = 'c'").agg(F.min("captured_at")).first()
    assert completed is not None
    assert streamed is not None
    assert completed[0] < streamed[0], "the stream did not wait"
    run_silver(again)
    assert len(documents_in_silver(again, "a")) == 3000
    assert_equal_to_source(again, database, "a")


# scenario: E06
def test_a_signal_is_acted_upon_once_wherever_the_process_ends(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": number} for number in range(10)])
    run_capture(ctx, once=True)
    database.a.delete_one({"_id": 3})
    commits = ("the signal and its plan", "the chunk", "the completion")
    for number, commit in enumerate(commits, 1):
        ask(ctx, "execute-snapshot", data_collections=[f"{database.name}\\.a"])
        ending = JobContext(ctx.settings, spark, CrashingTables(spark, ctx.tables.lake, {"left": number, "after": 1}))
        with pytest.raises(Crash):
            run_capture(ending, once=True)
        run_capture(ctx, once=True)
        assert list(acted(ctx).values()) == [1] * number, commit
    assert [state.state for state in list_snapshots(ctx)] == ["completed"] * 4
    assert_streamed_exactly_once(ctx)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")


# scenario: E06
def test_a_signal_waits_while_the_source_refuses_the_credentials(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    asked = ask(ctx, "execute-snapshot", data_collections=[f"{database.name}\\.a"])

    def refused(*_: object) -> list[Collection]:
        raise CredentialsRefused("the user was dropped")

    with monkeypatch.context() as changed:
        changed.setattr(signal_handler, "captured_collections", refused)
        with pytest.raises(CredentialsRefused):
            run_capture(ctx, once=True)
    assert acted(ctx) == {}
    assert run_capture(ctx, once=True).documents == 1
    assert acted(ctx) == {asked: 1}


# scenario: M09
@pytest.mark.long
def test_signals_come_by_a_file_and_by_a_collection_of_the_source_that_is_not_captured(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    file = tmp_path / "signals.jsonl"
    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path / "lake",
        collection_exclude_list=[f"{database.name}\\.signals"],
        signal_enabled_channels=("file", "source"),
        signal_data_collection=f"{database.name}.signals",
        signal_file=str(file),
    )
    database.a.insert_many([{"_id": number} for number in range(10)])
    database.signals.insert_one({"_id": "too early", "type": "log", "data": {"message": "before the stream began"}})
    run_capture(ctx, once=True)
    request = {"data-collections": [f"{database.name}\\.a"]}
    database.signals.insert_one({"_id": "s", "type": "execute-snapshot", "data": request})
    database.signals.update_one({"_id": "s"}, {"$set": {"type": "log"}})
    file.write_text(
        json.dumps({"id": "f", "type": "execute-snapshot", "data": request}) + "\nno JSON\n" + '{"id": "half'
    )
    ask_raw(ctx, ("t", "log", None))  # nobody listens to rows of the table
    assert run_capture(ctx, once=True).documents == 20
    assert run_capture(ctx, once=True).documents == 0
    found = acted(ctx)
    assert set(found.values()) == {1}
    assert {"s", "f"} < found.keys()
    assert len(found) == 3, "a line that is no JSON is a signal that is refused; half a line is none yet"
    assert bronze(ctx).where("collection = 'signals'").count() == 0
    assert Counter(row["channel"] for row in ctx.tables.read(SIGNALS).collect()) == {"table": 1, "file": 2, "source": 1}
