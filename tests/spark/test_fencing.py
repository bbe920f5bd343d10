"""Fencing of bronze: an ended epoch has no writer, and no writer is fenced without a reason."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lakehouse import bronze_writer, forget_log
from pyspark.sql import DataFrame

from strandline.bronze.bronze_properties import TRANSACTION_RETENTION
from strandline.bronze.chunk_rows import ChunkStamp, manifest_table
from strandline.bronze.envelope import BatchEnd, Note, control_table
from strandline.bronze.epoch import BronzeRestored
from strandline.bronze.offsets import Committed, committed
from strandline.bronze.writer import BronzeWriter
from strandline.errors import ConfigurationError, ContractError, FencedError, StrandlineError
from strandline.io.delta_log.append_result import AlreadyAppended, Appended
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.table_folder import commit_name
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName

TOKEN = '{"_data": "8200"}'
BRONZE = bronze_table("shop")


def writer(tables: Tables, name: str, *, native: bool = False) -> BronzeWriter:
    return bronze_writer(tables, "shop", name, lambda: 1_700_000_000_000_000, native=native)


def opened(tables: Tables, name: str, *, native: bool = False) -> tuple[BronzeWriter, Committed]:
    bronze = writer(tables, name, native=native)
    return bronze, bronze.open("cluster", None) or bronze.commit([], batch=1, resume_token=TOKEN, snapshot_id=None)


def reset(bronze: BronzeWriter, last: Committed) -> Committed:
    return bronze.open_epoch(Note("offset", "reset", "{}"), batch=last.batch + 1, resume_token=None, snapshot_id=None)


def commit_others(tables: Tables, commits: int) -> None:
    """Commits that change no row, as `SET TBLPROPERTIES` makes them, only quicker."""
    folder = Path(tables.lake.path(BRONZE))
    for version in range(first := LogFolder(LocalFolder(folder)).newest() + 1, first + commits):
        (folder / commit_name(version)).write_text(
            json.dumps({"commitInfo": {"timestamp": 0, "operation": "SET TBLPROPERTIES"}})
        )


def busy(bronze: BronzeWriter, last: Committed, begun: threading.Event) -> StrandlineError | None:
    """Commits batches as fast as it can, for five minutes at most."""
    batch, deadline = last.batch, time.monotonic() + 300
    try:
        while time.monotonic() < deadline:
            batch += 1
            bronze.commit([], batch=batch, resume_token=TOKEN, snapshot_id=None)
            begun.set()
    except StrandlineError as error:
        return error
    finally:
        begun.set()
    return None


# scenario: Q05, O05
@pytest.mark.parametrize("native", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_epoch_ends_however_often_its_writer_commits(tables: Tables, native: bool) -> None:
    _end_epochs(tables, native=native, rounds=2)


@pytest.mark.long
@pytest.mark.parametrize("native", [True, False])
def test_twenty_epochs_end_however_often_their_writers_commit(tables: Tables, native: bool) -> None:
    _end_epochs(tables, native=native, rounds=20)


def _end_epochs(tables: Tables, *, native: bool, rounds: int) -> None:
    for number in range(rounds):
        capture, last = opened(tables, f"capture {number}", native=native)
        begun = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(busy, capture, last, begun)
            begun.wait(60)
            operator = writer(tables, f"operator {number}")
            seen = operator.open("cluster", None)
            assert seen is not None
            assert reset(operator, seen).epoch == seen.epoch + 1 == number + 2, "the epoch was passed over"
            assert isinstance(ended.result(), FencedError)
        with pytest.raises(FencedError):
            capture.commit([], batch=10**9, resume_token=TOKEN, snapshot_id=None)
        capture.close()


# scenario: Q05
@pytest.mark.parametrize("native", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_chunk_that_was_read_before_its_epoch_ended_does_not_land(tables: Tables, native: bool) -> None:
    capture, last = opened(tables, "capture", native=native)
    plan = {"chunks": [], "lanes": 2, "at": [1, 1], "complete": False, "kind": "initial", "signal": None}
    for snapshot in ("s1", "s2"):  # the second one took the first one's place
        capture.append_once(
            control(capture, snapshot, "plan", -1, plan), app_id=capture.app_id(snapshot, "plan"), sequence=0
        )
        last = capture.commit([], batch=last.batch + 1, resume_token=TOKEN, snapshot_id=snapshot)
    operator, seen = opened(tables, "operator")
    reset(operator, seen)
    version = tables.version(BRONZE)
    for snapshot, lane in (("s1", 0), ("s1", 1), ("s2", 0), ("s2", 1)):
        rows = control(capture, snapshot, "chunk", lane, {"documents": 0})
        landed = capture.append_read(_Given(rows), app_id=capture.app_id(snapshot, lane), sequence=lane)
        assert landed == AlreadyAppended()
        assert isinstance(capture.refusal("the chunk"), FencedError)
    capture.close()
    assert tables.version(BRONZE) == version


# scenario: O11
@pytest.mark.long
def test_a_chunk_of_a_snapshot_that_a_restore_took_back_does_not_land(tables: Tables) -> None:
    capture, last = opened(tables, "capture")
    before = tables.version(BRONZE)
    plan = {"chunks": [], "lanes": 1, "at": [1, 1], "complete": False, "kind": "initial", "signal": None}
    capture.append_once(control(capture, "s1", "plan", -1, plan), app_id=capture.app_id("s1", "plan"), sequence=0)
    capture.commit([], batch=last.batch + 1, resume_token=TOKEN, snapshot_id="s1")
    tables.spark.sql(f"RESTORE TABLE {tables.lake.sql(BRONZE)} TO VERSION AS OF {before}")
    opened(tables, "next")
    rows = control(capture, "s1", "chunk", 0, {"documents": 0})
    assert capture.append_once(rows, app_id=capture.app_id("s1", 0), sequence=0) == AlreadyAppended()


@dataclass(frozen=True)
class _Given:
    """Stands for a chunk that another process reads."""

    rows: pa.Table

    def __call__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.rows.to_batches())


def control(bronze: BronzeWriter, snapshot: str, word: str, chunk: int, content: dict[str, Any]) -> pa.Table:
    return manifest_table(ChunkStamp(bronze.stamp(), snapshot, chunk, "", "", None, 0, 0), word, json.dumps(content))


@dataclass(frozen=True)
class CrowdedTables(Tables):
    """Others commit between each append and the look for its proof."""

    files_are_seen: bool = True

    def append(self, table: TableName, rows: DataFrame, *, options: Mapping[str, str] | None = None) -> None:
        super().append(table, rows, options=options)
        commit_others(replace(self, files_are_seen=True), 60)

    def _log(self, table: TableName) -> LogFolder | None:
        return super()._log(table) if self.files_are_seen else None


@pytest.mark.parametrize("files_are_seen", [True, False])
def test_a_commit_is_known_again_behind_many_others(tables: Tables, files_are_seen: bool) -> None:
    crowded = CrowdedTables(tables.spark, tables.lake, files_are_seen=files_are_seen)
    bronze, last = opened(crowded, "w")
    assert last.batch == 1
    rows = control_table(bronze.stamp(), batch=2, end=BatchEnd(TOKEN, None))
    landed = bronze.append_once(rows, app_id=bronze.app_id(), sequence=2)
    assert isinstance(landed, Appended)
    assert landed.rows == 1
    assert isinstance(bronze.append_once(rows, app_id=bronze.app_id(), sequence=2), Appended), "its answer was lost"
    assert bronze.append_once(rows, app_id=bronze.app_id(), sequence=1) == AlreadyAppended()


# scenario: O11, G11
@pytest.mark.check
@pytest.mark.parametrize("native", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("log_is_whole", [True, False])
def test_a_restore_is_known_however_much_was_committed_since(tables: Tables, native: bool, log_is_whole: bool) -> None:
    capture, _ = opened(tables, "capture", native=native)
    for batch in (2, 3):
        capture.commit([], batch=batch, resume_token=TOKEN, snapshot_id=None)
    capture.close()
    tables.spark.sql(f"RESTORE TABLE {tables.lake.sql(BRONZE)} TO VERSION AS OF 1")
    commit_others(tables, 60)
    restored = False
    if not log_is_whole:
        forget_log(tables, BRONZE)
        late, last = opened(tables, "late", native=native)
        assert (last.batch, last.epoch) == (1, 1)
        with pytest.raises(BronzeRestored):
            late.commit([], batch=2, resume_token=TOKEN, snapshot_id=None)
        late.close()
        restored = True
    again = writer(tables, "again", native=native)
    last_again = again.open("cluster", None, restored=restored)
    assert last_again is not None
    assert (last_again.batch, last_again.epoch, last_again.resume_token) == (2, 2, TOKEN)
    again.commit([], batch=3, resume_token=TOKEN, snapshot_id=None)
    again.close()
    assert committed(tables, BRONZE) == Committed(3, TOKEN, None, 2)


@pytest.mark.parametrize("native", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("made_anew", [False, True])
def test_a_commit_into_another_table_is_noticed(tables: Tables, native: bool, made_anew: bool) -> None:
    capture, last = opened(tables, "capture", native=native)
    folder = Path(tables.lake.path(BRONZE))
    folder.rename(folder.with_name("aside"))
    if made_anew:
        other, _ = opened(tables, "other")
        commit_others(tables, 9)
        other.commit([], batch=2, resume_token=TOKEN, snapshot_id=None)
    back = rf"put the old folder back as {folder}, then strandline capture"
    why = rf"not the table that this capture opened.* up to {last.batch},.*{back}"
    for batch in (last.batch + 1, last.batch + 2):
        with pytest.raises(ContractError, match=why):
            capture.commit([], batch=batch, resume_token=TOKEN, snapshot_id=None)
    with pytest.raises(ContractError, match=why):
        capture.append_read(_Given(control(capture, "s1", "chunk", 0, {})), app_id=capture.app_id("s1", 0), sequence=0)
    assert folder.exists() == made_anew


@dataclass(frozen=True)
class FarTables(Tables):
    """Tables whose files only Spark sees, as in a catalog or an object store. Counts reads of the table's id."""

    asked: list[TableName] = field(default_factory=list)

    def _log(self, table: TableName) -> LogFolder | None:  # noqa: ARG002  # why: as the method that it stands for
        return None

    def id(self, table: TableName) -> str:
        self.asked.append(table)
        return super().id(table)


@pytest.mark.parametrize("swapped", ["another table", "an older copy"])
@pytest.mark.long
def test_each_commit_proves_its_table_also_where_only_spark_sees_it(tables: Tables, swapped: str) -> None:
    far = FarTables(tables.spark, tables.lake)
    capture, _ = opened(far, "capture")
    folder = Path(tables.lake.path(BRONZE))
    shutil.copytree(folder, folder.with_name("copy"))
    for batch in (2, 3, 4):
        capture.commit([], batch=batch, resume_token=TOKEN, snapshot_id=None)
    assert len(far.asked) == 2, "when it is opened, and at the first commit"
    folder.rename(folder.with_name("aside"))
    if swapped == "an older copy":
        folder.with_name("copy").rename(folder)
    opened(tables, "other")
    commit_others(tables, 9)
    why = (
        "not the table that this capture opened"
        if swapped == "another table"
        else "no longer holds what this writer committed before"
    )
    for batch in (5, 6):
        with pytest.raises(StrandlineError, match=why):
            capture.commit([], batch=batch, resume_token=TOKEN, snapshot_id=None)


def test_a_table_that_something_else_made_is_not_blamed_on_a_deployment(tables: Tables) -> None:
    tables.create(BRONZE, tables.spark.range(1).schema)
    with pytest.raises(ConfigurationError, match=r"has no property strandline.source, so Strandline did not create it"):
        writer(tables, "w").open("cluster", None)


# scenario: Q05
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("rival", ["committed the batch", "ended the lineage"])
def test_a_writer_that_slept_is_fenced_although_delta_forgets_transactions(
    tables: Tables, caplog: pytest.LogCaptureFixture, native: bool, rival: str
) -> None:
    capture, last = opened(tables, "capture", native=native)
    tables.set_properties(BRONZE, {TRANSACTION_RETENTION: "interval 0 seconds"})
    other, seen = opened(tables, "other")
    assert f"bronze.shop has {TRANSACTION_RETENTION} = interval 0 seconds: after" in caplog.text
    if rival == "committed the batch":
        other.commit([], batch=last.batch + 1, resume_token=TOKEN, snapshot_id=None)
    else:
        reset(other, seen)
    version = tables.version(BRONZE)
    with pytest.raises(FencedError):
        capture.commit([], batch=last.batch + 1, resume_token=TOKEN, snapshot_id=None)
    capture.close()
    assert tables.version(BRONZE) == version
