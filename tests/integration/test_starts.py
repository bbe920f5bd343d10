"""Starts of single collections: what is left out, the gap that says so, and the snapshot that heals it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest
from lakehouse import assert_equal_to_source, bronze, documents_in_silver, land, pipeline, silver
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.bronze.writer import BronzeWriter
from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset, reset_offset
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.operations.cut_listing import list_cuts
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.report import list_snapshots
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.model.gap import gaps_of
from strandline.model.position import snapshot_position
from strandline.model.table_schemas import bronze_table
from strandline.source.client import operation_time

Db = Database[dict[str, Any]]
NO_BACKFILL = "no_backfill"


def rest_a_second() -> str:
    """Return a time that lies between the changes before this call and those after it."""
    time.sleep(1.1)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    time.sleep(0.1)
    return now


def keys(ctx: JobContext, collection: str) -> list[tuple[str, str]]:
    rows = bronze(ctx).where(f"collection = '{collection}' AND op IN ('c', 'u', 'd', 'r')").select("op", "key")
    return sorted((row["op"], row["key"]) for row in rows.collect())


def shown(ctx: JobContext, collection: str) -> dict[str, bool]:
    """Return the keys that are not deleted, each with True if its document is there."""
    rows = silver(ctx, collection).where("NOT _deleted").selectExpr("_key", "_document IS NOT NULL AS whole")
    return {row["_key"]: row["whole"] for row in rows.collect()}


def crash(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


def gap(ctx: JobContext) -> str:
    return show_offset(ctx).gap or ""


def read_again(ctx: JobContext, collection: str, **data: Any) -> None:
    request = {"data-collections": [f"{ctx.settings.capture.target}\\.{collection}"], **data}
    send_signal(ctx, "execute-snapshot", request, by="ops")


# promise 3
# why long: a minute and a half by Spark
@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.long), "auto"])
def test_collections_without_a_snapshot_begin_at_their_start_and_a_later_snapshot_heals_their_gaps(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, engine: str
) -> None:
    for name in ("logs", "old", "orders"):
        database[name].insert_many([{"_id": 1, "n": 0}, {"_id": 2, "n": 0}])
    then = rest_a_second()
    for name in ("logs", "old", "orders"):
        database[name].insert_one({"_id": 3, "n": 0})
    logs, old = f"{database.name}.logs", f"{database.name}.old"
    starts = {logs: NO_BACKFILL, old: {"from": then}}
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, engine=engine, mode="change_streams", starts=starts)
    land(ctx)
    assert (keys(ctx, "logs"), keys(ctx, "old")) == ([], [("c", "3")])
    assert documents_in_silver(ctx, "orders").keys() == {"1", "2", "3"}

    database.logs.insert_one({"_id": 4, "n": 0})
    database.logs.update_one({"_id": 4}, {"$set": {"n": 1}})
    database.logs.update_one({"_id": 1}, {"$set": {"n": 1}})
    database.logs.delete_one({"_id": 2})
    database.old.update_one({"_id": 3}, {"$set": {"n": 1}})
    land(ctx)
    assert shown(ctx, "logs") == {"1": False, "4": True}, "an update of an older document waits for it"
    assert shown(ctx, "old") == {"3": True}
    began = f"changes of {old} are missing from the beginning to {then}"
    assert gap(ctx).startswith(f"changes of {logs} are missing from the beginning to 2")
    assert gap(ctx).endswith(f"; {began}")
    assert "gap" in list_cuts(ctx, limit=1)[0]["inexact_reasons"]
    compared = {result.collection: result for result in run_reconcile(ctx).collections}
    counts = [(result.missing, result.different) for result in compared.values()]
    assert counts == [(1, 1), (2, 0), (0, 0)], "the row that waits is different"
    assert [result.gap for result in compared.values()] == [gap(ctx).split("; ")[0], began, None]
    rebuilt = [run_rebuild(ctx, name, dry_run=True) for name in ("logs", "old")]
    assert [(result.missing, result.extra, result.different) for result in rebuilt] == [(0, 0, 0)] * 2

    read_again(ctx, "logs")
    land(ctx)
    assert gap(ctx) == began, "a snapshot of one collection heals its gap"
    read_again(ctx, "old")
    land(ctx)
    assert gap(ctx) == ""
    database.orders.insert_one({"_id": 4})
    land(ctx)  # an event that is newer than the snapshot
    assert list_cuts(ctx, limit=1)[0]["inexact_reasons"] == []
    assert_equal_to_source(ctx, database, "logs", "old", "orders")


def test_a_reset_reads_a_collection_without_a_backfill_no_more_than_the_first_start_and_keeps_its_rows(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.logs.insert_one({"_id": 1})
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, starts={f"{database.name}.logs": NO_BACKFILL})
    land(ctx)
    database.orders.insert_one({"_id": 1})
    database.logs.insert_many([{"_id": 2}, {"_id": 3}])
    database.logs.delete_one({"_id": 3})
    land(ctx)
    set_desired_state(ctx, "stopped", by="ops", why=None)
    assert reset_offset(ctx, by="ops", why=None).snapshot == "some"
    set_desired_state(ctx, "running", by="ops", why=None)
    database.logs.insert_one({"_id": 4})
    land(ctx)
    database.orders.insert_one({"_id": 2})
    land(ctx)
    assert documents_in_silver(ctx, "logs").keys() == {"2"}
    assert [f"changes of {database.name}.logs" in part for part in gap(ctx).split("; ")] == [True, True]
    read_again(ctx, "logs")
    land(ctx)
    assert gap(ctx) == ""
    assert_equal_to_source(ctx, database, "logs", "orders")


def test_a_snapshot_of_every_captured_collection_heals_a_gap_of_any_collection(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_mode="no_data")
    land(ctx)
    database.a.insert_one({"_id": 1})
    database.b.insert_one({"_id": 1})
    land(ctx)
    set_desired_state(ctx, "stopped", by="ops", why=None)
    reset_offset(ctx, by="ops", why=None)
    set_desired_state(ctx, "running", by="ops", why=None)
    database.b.drop()
    read_again(ctx, ".*")
    land(ctx)
    assert gap(ctx) == ""
    assert_equal_to_source(ctx, database, "a", "b")


def test_a_later_collection_begins_when_the_filters_include_it_and_not_before_the_stream(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    def ctx(*names: str, **starts: Any) -> JobContext:
        included = [f"{database.name}\\.{name}" for name in names]
        own = {f"{database.name}.{name}": start for name, start in starts.items()}
        return pipeline(spark, mongo_uri, database.name, tmp_path, collection_include_list=included, starts=own)

    for name in ("a", "late", "later"):
        database[name].insert_one({"_id": 1})
    land(ctx("a"))
    database.later.insert_one({"_id": 2})
    then = rest_a_second()
    database.later.insert_one({"_id": 3})
    database.a.insert_one({"_id": 2})
    land(ctx("a"))
    every = ("a", "late", "later")
    with pytest.raises(ConfigurationError, match=r"the stream has passed .*later.*offsets alter --to .*; or leave"):
        run_capture(ctx(*every, late=NO_BACKFILL, later={"from": then}), once=True)
    set_desired_state(ctx("a"), "stopped", by="ops", why=None)
    alter_offset(ctx("a"), then, by="ops", why=None)
    set_desired_state(ctx("a"), "running", by="ops", why=None)
    now = ctx(*every, late=NO_BACKFILL, later={"from": then})
    run_capture(now, once=True)
    database.late.insert_one({"_id": 2})
    run_capture(now, once=True)
    assert (keys(now, "late"), keys(now, "later")) == ([("c", "2")], [("c", "3")])
    run_silver(now)
    assert {"late are", "later are"} <= {" ".join(part.split(".")[1].split()[:2]) for part in gap(now).split("; ")}
    land(ctx(*every))  # without its line, a collection goes on as before
    assert f"changes of {database.name}.late are missing" in gap(now)


def test_a_crash_before_the_first_batch_leaves_one_gap_up_to_the_later_start(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.logs.insert_one({"_id": 1})
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, starts={f"{database.name}.logs": NO_BACKFILL})
    with monkeypatch.context() as broken:
        broken.setattr(BronzeWriter, "commit", crash)
        with pytest.raises(KeyboardInterrupt):
            run_capture(ctx, once=True)
    database.logs.insert_one({"_id": 2})
    inserted = snapshot_position(*operation_time(database.client))
    run_capture(ctx, once=True)
    database.logs.insert_one({"_id": 3})
    run_capture(ctx, once=True)
    assert keys(ctx, "logs") == [("c", "3")]
    (own,) = gaps_of(ctx.tables.properties(bronze_table("test")))
    assert own.before >= inserted


def test_a_snapshot_that_replaces_drops_the_unread_chunks_of_a_running_one(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        database[name].insert_many([{"_id": number} for number in range(10)])
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_delay_ms=3_000)
    read_again(ctx, "a", replace=True)
    assert run_capture(ctx, once=True).documents == 20
    assert [(state.landed, state.documents) for state in list_snapshots(ctx)] == [(1, 10), (1, 10)]
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "b")


def test_a_name_that_the_filters_leave_out_or_that_does_not_exist_is_told(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match=r"starts names other\.logs, which the filters of capture leave out"):
        run_capture(pipeline(spark, mongo_uri, database.name, tmp_path, starts={"other.logs": NO_BACKFILL}), once=True)
    database.logs.insert_one({"_id": 1})
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, starts={f"{database.name}.lgos": NO_BACKFILL})
    land(ctx)
    assert f"capture.starts names {database.name}.lgos, which does not exist now (did you mean" in caplog.text
    database.lgos.insert_one({"_id": 1})
    land(ctx)
    assert gap(ctx) == "", "of a collection that is created later nothing is missing"
    assert_equal_to_source(ctx, database, "logs", "lgos")
