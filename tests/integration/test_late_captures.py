"""Captures that are delayed, run at the same time, or lose their table."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, documents_in_silver, pipeline
from processes import wait_until
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.bronze.engine import TransactionId
from strandline.bronze.native_engine import NativeEngine
from strandline.errors import ContractError, FencedError
from strandline.io.delta_log.parquet_file import DataFile
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset, reset_offset
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.model.table_schemas import bronze_table

Db = Database[dict[str, Any]]
BRONZE = bronze_table("test")
_PATIENCE = 300.0


class Sleepers:
    """Delays the first native captures between the read and the commit of a snapshot chunk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, captures: int) -> None:
        commit = NativeEngine._commit
        self._writers: list[str] = []
        self.have_read = [threading.Event() for _ in range(captures)]
        self.may_land_chunk = [threading.Event() for _ in range(captures)]
        self.may_land_rest = [threading.Event() for _ in range(captures)]

        def late(engine: NativeEngine, file: DataFile, once: TransactionId) -> Any:
            self._wait(once)
            return commit(engine, file, once)

        monkeypatch.setattr(NativeEngine, "_commit", late)

    def _wait(self, once: TransactionId) -> None:
        *_, lane = once.app_id.split(":")
        *_, writer, _ = once.proof.split(":")
        is_chunk = once.app_id.count(":") == 4 and lane.isdigit()
        if is_chunk and writer not in self._writers:
            self._writers.append(writer)
        number = self._writers.index(writer) if writer in self._writers else len(self.have_read)
        if number < len(self.have_read):
            if is_chunk:
                self.have_read[number].set()
            assert (self.may_land_chunk if is_chunk else self.may_land_rest)[number].wait(_PATIENCE)


def landed_chunks(ctx: JobContext) -> int:
    return bronze(ctx).where("op = 'snapshot' AND operation_type = 'chunk'").count()


# scenario: Q05
def test_a_chunk_that_wakes_up_behind_a_reset_brings_no_document_back(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.a.insert_many([{"_id": number} for number in range(4)])
    ctx, sleepers = pipeline(spark, mongo_uri, database.name, tmp_path), Sleepers(monkeypatch, 1)
    with ThreadPoolExecutor(1) as pool:
        asleep = pool.submit(run_capture, ctx, once=True)
        assert sleepers.have_read[0].wait(_PATIENCE)
        set_desired_state(ctx, "stopped", by="ops", why=None)
        reset_offset(ctx, by="ops", why=None)
        database.a.delete_one({"_id": 3})
        set_desired_state(ctx, "running", by="ops", why=None)
        assert run_capture(ctx, once=True).documents == 3
        run_silver(ctx)
        sleepers.may_land_chunk[0].set()
        sleepers.may_land_rest[0].set()
        assert asleep.exception(_PATIENCE) is None or isinstance(asleep.exception(), FencedError)
    assert landed_chunks(ctx) == 1
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")


# scenario: Q05, O05
@pytest.mark.long
def test_a_chunk_that_wakes_up_behind_an_alteration_is_a_part_of_the_snapshot_that_goes_on(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.a.insert_many([{"_id": number} for number in range(4)])
    ctx, sleepers = pipeline(spark, mongo_uri, database.name, tmp_path), Sleepers(monkeypatch, 1)
    with ThreadPoolExecutor(1) as pool:
        asleep = pool.submit(run_capture, ctx, once=True)
        assert sleepers.have_read[0].wait(_PATIENCE)
        set_desired_state(ctx, "stopped", by="ops", why=None)
        database.a.insert_one({"_id": "in the gap"})
        database.a.delete_one({"_id": 0})  # in the gap, too
        assert alter_offset(ctx, "now", by="ops", why=None).direction == "forward"
        database.a.delete_one({"_id": 3})
        sleepers.may_land_chunk[0].set()
        wait_until(lambda: landed_chunks(ctx) == 1)
        sleepers.may_land_rest[0].set()
        assert asleep.exception(_PATIENCE) is None or isinstance(asleep.exception(), FencedError)
    set_desired_state(ctx, "running", by="ops", why=None)
    assert run_capture(ctx, once=True).documents == 0, "the chunk counts, whoever landed it"
    run_silver(ctx)
    assert sorted(documents_in_silver(ctx, "a")) == ["0", "1", "2"], (
        "what the gap hides stays hidden, and 3 stays deleted"
    )
    set_desired_state(ctx, "stopped", by="ops", why=None)
    reset_offset(ctx, by="ops", why="to heal the gap")
    set_desired_state(ctx, "running", by="ops", why=None)
    assert run_capture(ctx, once=True).documents == 3
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")


# scenario: Q05, O05
@pytest.mark.long
def test_a_chunk_of_a_snapshot_that_was_stopped_does_not_land_behind_the_next_snapshot(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.a.insert_many([{"_id": number} for number in range(4)])
    ctx, sleepers = pipeline(spark, mongo_uri, database.name, tmp_path), Sleepers(monkeypatch, 1)
    with ThreadPoolExecutor(1) as pool:
        asleep = pool.submit(run_capture, ctx, once=True)
        assert sleepers.have_read[0].wait(_PATIENCE)
        set_desired_state(ctx, "stopped", by="ops", why=None)
        database.a.delete_one({"_id": 3})  # no stream shows it
        assert alter_offset(ctx, "now", by="ops", why=None).direction == "forward"
        set_desired_state(ctx, "running", by="ops", why=None)
        send_signal(ctx, "stop-snapshot", {"type": "incremental"}, by="ops")
        send_signal(ctx, "execute-snapshot", {"data-collections": [f"{database.name}\\.a"]}, by="ops")
        later = pipeline(
            spark, mongo_uri, database.name, tmp_path, snapshot_delay_ms=4000
        )  # the first one is stopped while it waits
        assert run_capture(later, once=True).documents == 3
        run_silver(ctx)
        sleepers.may_land_chunk[0].set()
        sleepers.may_land_rest[0].set()
        assert asleep.exception(_PATIENCE) is None or isinstance(asleep.exception(), FencedError)
    assert bronze(ctx).where("op = 'r'").count() == 3
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")


# scenario: Q03
@pytest.mark.long
def test_of_two_captures_with_a_chunk_in_common_exactly_one_goes_on(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.a.insert_many([{"_id": number} for number in range(4)])
    ctx, sleepers = pipeline(spark, mongo_uri, database.name, tmp_path), Sleepers(monkeypatch, 2)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run_capture, ctx, once=True)
        assert sleepers.have_read[0].wait(_PATIENCE)
        sleepers.may_land_rest[1].set()
        second = pool.submit(run_capture, ctx, once=True)
        assert sleepers.have_read[1].wait(_PATIENCE)
        database.a.insert_one({"_id": 4})
        wait_until(lambda: show_offset(ctx).batch > 1)
        sleepers.may_land_chunk[0].set()
        wait_until(lambda: landed_chunks(ctx) == 1)
        sleepers.may_land_chunk[1].set()
        assert second.exception(_PATIENCE) is None, "its batch was the first"
        sleepers.may_land_rest[0].set()
        assert isinstance(first.exception(_PATIENCE), FencedError)
    assert landed_chunks(ctx) == 1
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, database, "a")


@pytest.mark.parametrize("engine", ["native", pytest.param("spark", marks=pytest.mark.long)])
def test_a_capture_whose_lake_was_moved_fails_and_creates_no_second_lake(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, engine: Literal["native", "spark"]
) -> None:
    lake, aside = tmp_path / "lake", tmp_path / "aside"
    ctx = pipeline(spark, mongo_uri, database.name, lake, engine=engine)
    database.a.insert_one({"_id": 0})
    run_capture(ctx, once=True)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_capture, ctx)
        database.a.insert_one({"_id": 1})
        wait_until(lambda: bronze(ctx).where("op = 'c'").count() == 1)
        lake.rename(aside)
        database.a.insert_one({"_id": 2})
        lost = running.exception(_PATIENCE)
    assert isinstance(lost, ContractError)
    assert "bronze.test is not the table that this capture opened" in str(lost)
    assert lost.exit_code == 4
    assert not Path(ctx.tables.lake.path(BRONZE)).exists()
    shutil.rmtree(lake, ignore_errors=True)
    aside.rename(lake)
    assert run_capture(ctx, once=True).events == 1
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
