"""Continuous proof: a walk over `_id` ranges that goes on after a restart, finds what is damaged, and repairs it."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import bson
import pytest
from deltalake import DeltaTable
from lakehouse import pipeline, settings_for
from processes import repeated, wait_until
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_refused import WITHOUT_SPARK, capture_without_spark, lake_without_spark
from without_java import COMMAND, environment, source_of, strandline

from strandline.control.proof import ProofRange, ProofStatus, ProofTable
from strandline.control.sources import State, set_state
from strandline.errors import RetriableError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import LazyContext, open_silver_without_spark
from strandline.jobs.reconcile import continuous
from strandline.jobs.reconcile.continuous import ContinuousProof, ProofStep
from strandline.jobs.reconcile.run_reconcile import differing_keys, run_reconcile
from strandline.jobs.run import run_continuously
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.query import Query
from strandline.model.table_schemas import RECONCILE
from strandline.model.tables import TableName
from strandline.settings.proof import ProofSettings
from strandline.source.client import AnyClient

Db = Database[dict[str, Any]]
pytestmark = WITHOUT_SPARK
_TABLE = TableName("silver", "a")


Opening = Callable[..., LazyContext]


@pytest.fixture
def opened(mongo_uri: str, database: Db, tmp_path: Path) -> Opening:
    """Return a function that opens the lake without Spark, with settings of the capture."""

    def opening(**capture: Any) -> LazyContext:
        settings = settings_for(mongo_uri, database.name, tmp_path / "lake", **capture)
        return lake_without_spark(settings)

    return opening


def land(ctx: LazyContext) -> None:
    capture_without_spark(ctx)
    run_silver(ctx)


def step(ctx: Any, *, repairs: bool = False, rest: float = 0) -> ProofStep:
    """One step of a process that has just started: about 2,000 documents."""
    proof = ContinuousProof(ctx, 10_000, repairs, rest=timedelta(seconds=rest), step_seconds=0.2)
    return proof.step(threading.Event())


def status(ctx: LazyContext) -> ProofStatus:
    found = ProofTable(ctx.tables, "test").status()
    assert found is not None
    return found


def stored(ctx: LazyContext) -> dict[int, ProofRange]:
    (rows,) = ProofTable(ctx.tables, "test").read().values()
    return {row.number: row for row in rows}


def silver(ctx: LazyContext) -> DeltaTable:
    return ctx.tables.folder(_TABLE).table()


def damage(ctx: LazyContext) -> None:
    """Delete a row, change a document, and change a column."""
    ctx.tables.delete_rows(_TABLE, ("_key", "=", "100"))
    wrong = bson.encode({"_id": 2500, "v": "wrong"}).hex()
    silver(ctx).update(updates={"_document": f"X'{wrong}'", "v": "'wrong'"}, predicate="_key = '2500'")
    ctx.tables.update_rows(_TABLE, {"v": "wrong"}, ("_key", "=", "4900"))


def test_a_walk_goes_on_after_each_restart_and_finds_and_repairs_what_is_damaged(opened: Opening, database: Db) -> None:
    ctx = opened(snapshot_chunk_size=1_000)
    database.a.insert_many([{"_id": number, "v": f"text {number}"} for number in range(5_000)])
    assert step(ctx).ranges == 0, "nothing was captured"
    land(ctx)

    first = step(ctx, rest=60)
    assert (0 < first.ranges < 4, first.differences, status(ctx).equal_through) == (True, 0, None)
    while status(ctx).unproven:
        before = stored(ctx)
        assert step(ctx, rest=60).ranges
        assert all(stored(ctx)[number] == row for number, row in before.items() if row.compared_at), "compared once"
    whole = status(ctx)
    assert (whole.ranges >= 4, whole.differences, whole.equal_through is not None) == (True, 0, True)
    assert sum(row.documents or 0 for row in stored(ctx).values()) == 5_000

    damage(ctx)
    steps = [step(ctx) for _ in range(4)]
    assert sum(one.differences for one in steps) >= 3
    run_ids = {row.run_id for row in stored(ctx).values() if row.differences}
    kinds = {row["key"]: row["kind"] for run_id in run_ids for row in differing_keys(ctx, run_id or "", 10)}
    assert kinds == {"100": "missing", "2500": "different", "4900": "column"}
    assert status(ctx).equal_through == whole.equal_through, "the damaged ranges keep their older proof"
    database.a.insert_many([{"_id": number, "v": "new"} for number in range(5_000, 7_000)])
    land(ctx)

    for _ in range(8):
        one = step(ctx, repairs=True)
        assert one.repaired == one.differences
        if one.repaired:  # a comparison waits for silver
            land(ctx)
    assert (status(ctx).differences, status(ctx).unproven) == (0, 0)
    assert run_reconcile(ctx, typed=True).holds
    left = ctx.tables.query(Query(RECONCILE).select("key", "repaired_at").where(("repaired_at", "is null", None)))
    assert left == [], "differences that were compared again are not kept twice"


@pytest.mark.long
def test_spark_compares_where_it_must_and_stores_the_same(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, opened: Opening
) -> None:
    ctx = opened()
    database.a.insert_many([{"_id": number, "v": f"text {number}"} for number in range(5_000)])
    land(ctx)
    damage(ctx)
    step(ctx)
    alone = stored(ctx)
    job = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    step(job)
    assert [(row.documents, row.differences, row.position) for row in stored(ctx).values()] == [(5_000, 3, None)]
    assert [row.differences for row in alone.values()] == [3]


@pytest.mark.long
def test_a_step_in_which_a_collection_is_dropped_is_repeated_with_an_empty_one(
    spark: SparkSession,
    mongo_uri: str,
    database: Db,
    tmp_path: Path,
    opened: Opening,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ctx, chunks = opened(), {"snapshot_chunk_size": 1_000}
    job = pipeline(spark, mongo_uri, database.name, tmp_path / "lake", **chunks)
    for name in "ab":
        database[name].insert_many([{"_id": number, "v": f"text {number}"} for number in range(5_000)])
    land(ctx)
    times, reads = continuous.operation_time, count(1)

    def drop_between_ranges(client: AnyClient) -> tuple[int, int]:
        if next(reads) == 2:
            database.a.drop()
            run_capture(job, once=True)
            run_silver(job)
        return times(client)

    proof = ContinuousProof(job, 10_000, repairs=False, rest=timedelta(), step_seconds=0.5)
    monkeypatch.setattr(continuous, "operation_time", drop_between_ranges)
    with pytest.raises(RetriableError, match="could not be read"):
        proof.step(threading.Event())
    while (ranges := ProofTable(ctx.tables, "test").status()) is None or ranges.unproven:
        assert proof.step(threading.Event()).differences == 0
    ranges_of = {name.collection: rows for name, rows in ProofTable(ctx.tables, "test").read().items()}
    assert {name: sum(row.documents or 0 for row in rows) for name, rows in ranges_of.items()} == {"a": 0, "b": 5_000}


def test_a_paused_source_is_not_asked(opened: Opening, database: Db) -> None:
    ctx = opened()
    database.a.insert_one({"_id": 1})
    land(ctx)
    states: dict[State, int] = {"paused": 0, "stopped": 0, "running": 1}
    for state, ranges in states.items():
        set_state(ctx.tables, "test", state, by="test", why=None)
        assert step(ctx).ranges == ranges
    database.b.insert_one({"_id": 1})
    land(ctx)
    step(ctx)
    assert {namespace.collection for namespace in ProofTable(ctx.tables, "test").read()} == {"a", "b"}


def test_a_running_pipeline_finds_a_planted_corruption_and_repairs_it(opened: Opening, database: Db) -> None:
    ctx = opened()
    database.a.insert_many([{"_id": number, "v": f"text {number}"} for number in range(5_000)])
    land(ctx)
    damage(ctx)
    settings = ctx.settings.model_copy(update={"proof": ProofSettings(budget=100_000, repair=True)})
    ctx = replace(ctx, settings=settings)
    lake = open_silver_without_spark(settings)
    assert lake is not None
    stop, began = threading.Event(), time.monotonic()
    run = threading.Thread(
        target=run_continuously,
        args=(lake, lambda: ctx, stop),
        kwargs={"report": lambda *_: None, "silver_report": lambda _: None},
    )
    with repeated(lambda n: database.a.update_one({"_id": 1_000 + n % 1_000}, {"$set": {"v": f"now {n}"}}), every=0.02):
        run.start()
        try:
            proof = ProofTable(ctx.tables, "test")
            wait_until(lambda: (one := proof.status()) and one.differences, "no difference", seconds=60)
            assert time.monotonic() - began < 30
            wait_until(lambda: len(_living(ctx)) == 5_000, "no repair", seconds=60)
        finally:
            stop.set()
            began = time.monotonic()
            run.join()
    assert time.monotonic() - began < 20, "a stop does not wait for the comparison"
    land(ctx)
    assert run_reconcile(ctx, typed=True).holds


def _living(ctx: LazyContext) -> list[Any]:
    return silver(ctx).to_pyarrow_table(columns=["_key"], filters=[("_deleted", "=", False)])["_key"].to_pylist()


def test_the_command_goes_on_after_a_kill_and_status_shows_the_proof(
    mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.a.insert_many([{"_id": number} for number in range(100)])
    source = source_of(mongo_uri, database)
    assert strandline(tmp_path, "run", "--once", **source).returncode == 0
    refused = strandline(tmp_path, "reconcile", "--continuous", **source)
    assert refused.returncode == 2
    assert "--set proof.budget=1000" in refused.stderr
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(
            [str(COMMAND), "--set", "proof.budget=1000", "reconcile", "--continuous"],
            cwd=tmp_path,
            env=environment(tmp_path, **source),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        if number == signal.SIGKILL:
            assert process.stdout.readline() == "ranges: 1, documents: 100, differences: 0\n"
        else:
            time.sleep(3)
        process.send_signal(number)
        process.communicate(timeout=30)
    shown = strandline(tmp_path, "status", "--json", **source)
    assert json.loads(shown.stdout)["proof"]["unproven"] == 0
    assert "equal up to" in strandline(tmp_path, "status", **source).stdout
