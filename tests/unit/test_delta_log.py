"""Appends to a Delta table without a JVM: each is there once, and none takes another writer's place."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import ConfigurationError, FencedError, RetriableError
from pipelines.io.append_result import AlreadyAppended, Appended
from pipelines.io.commits import LogFolder
from pipelines.io.delta_log import DeltaLog
from pipelines.io.parquet_file import DataFile, write_data_file

SCHEMA = pa.schema([("batch", pa.int64()), ("position", pa.string()), ("text", pa.string())])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "_delta_log").mkdir()
    commit(tmp_path, 0, {"protocol": {"minWriterVersion": 7, "writerFeatures": ["appendOnly"]}})
    return tmp_path


def commit(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    (folder / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def committed(folder: Path, version: int) -> dict[str, Any]:
    lines = (folder / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return {name: content for line in lines for name, content in json.loads(line).items()}


def versions(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in (folder / "_delta_log").glob("*.json"))


def data_file(folder: Path, *rows: dict[str, Any]) -> DataFile:
    parts = [pa.RecordBatch.from_pylist([row], schema=SCHEMA) for row in rows]
    return write_data_file(folder, SCHEMA, parts, statistics_of=["batch", "position"], dictionaries=["batch"])


def append(log: DeltaLog, sequence: int, proof: str, app_id: str = "app") -> Appended | AlreadyAppended:
    return log.append_once([data_file(log.folder, {"batch": sequence})], app_id=app_id, sequence=sequence, proof=proof)


def test_a_commit_names_its_file_its_transaction_and_its_proof(folder: Path) -> None:
    rows = [{"batch": 1, "position": "b" * 40}, {"batch": 2, "position": "a" * 40}, {"batch": 3, "position": None}]
    landed = DeltaLog(folder, 0).append_once([data_file(folder, *rows)], app_id="app", sequence=7, proof="mine")
    assert landed == Appended(rows=3, restored_at=None)
    found = committed(folder, 1)
    assert found["txn"]["appId"] == "app"
    assert found["txn"]["version"] == 7
    assert found["commitInfo"]["userMetadata"] == "mine"
    assert found["commitInfo"]["operationMetrics"]["numOutputRows"] == "3"
    added = found["add"]
    assert added["dataChange"] is True
    assert added["size"] == (folder / added["path"]).stat().st_size
    assert pq.read_table(folder / added["path"]).column("batch").to_pylist() == [1, 2, 3]
    statistics = json.loads(added["stats"])
    assert statistics["numRecords"] == 3
    assert statistics["nullCount"] == {"batch": 0, "position": 1}
    assert statistics["minValues"] == {"batch": 1, "position": "a" * 32}
    assert statistics["maxValues"]["batch"] == 3
    assert statistics["maxValues"]["position"] > "b" * 40, "a bound that is cut is still one"


def test_what_nothing_is_known_of_has_no_bounds(folder: Path) -> None:
    statistics = json.loads(data_file(folder, {"text": "x"}).statistics)
    assert (statistics["minValues"], statistics["maxValues"], statistics["nullCount"]) == (
        {},
        {},
        {"batch": 1, "position": 1},
    )


# scenario: E03
def test_an_append_that_is_repeated_is_there_once(folder: Path) -> None:
    log = DeltaLog(folder, 0)
    assert isinstance(append(log, 1, "mine"), Appended)
    assert isinstance(append(log, 1, "mine"), Appended), "its answer was lost"
    assert versions(folder) == [0, 1]


# scenario: Q03, Q05
def test_of_two_writers_the_second_adds_nothing(folder: Path) -> None:
    sleeper, rival = DeltaLog(folder, 0), DeltaLog(folder, 0)
    for sequence in (1, 2, 3):
        assert isinstance(append(rival, sequence, f"rival {sequence}"), Appended)
    for sequence in (1, 2, 3):
        assert append(sleeper, sequence, f"sleeper {sequence}") == AlreadyAppended()
    assert versions(folder) == [0, 1, 2, 3]
    assert isinstance(append(sleeper, 1, "sleeper", app_id="another"), Appended), (
        "what is somebody else's business is in nobody's way"
    )


def test_writers_at_the_same_moment_all_find_a_place(folder: Path) -> None:
    def work(writer: int) -> None:
        log = DeltaLog(folder, 0)
        for sequence in range(10):
            assert isinstance(append(log, sequence, f"{writer}:{sequence}", app_id=str(writer)), Appended)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert versions(folder) == list(range(41))
    said = [committed(folder, version)["commitInfo"]["userMetadata"] for version in range(1, 41)]
    assert len(set(said)) == 40
    assert not list((folder / "_delta_log").glob("*.tmp"))


def test_a_restore_is_noticed(folder: Path) -> None:
    log = DeltaLog(folder, 0)
    commit(folder, 1, {"commitInfo": {"operation": "RESTORE"}})
    assert append(log, 1, "mine") == Appended(1, restored_at=1)


def test_a_table_that_asks_for_more_is_refused(folder: Path) -> None:
    log = DeltaLog(folder, 0)
    commit(folder, 1, {"protocol": {"minWriterVersion": 7, "writerFeatures": ["appendOnly", "rowTracking"]}})
    for _ in range(2):  # another thread of this writer asks again
        with pytest.raises(ConfigurationError, match="rowTracking"):
            append(log, 1, "mine")
    assert versions(folder) == [0, 1]


def test_a_writer_that_slept_longer_than_the_log_is_kept_stops(folder: Path) -> None:
    """It would put its commit into the table's past, before a checkpoint that no reader looks behind."""
    log = DeltaLog(folder, 0)
    commit(folder, 9, {"commitInfo": {"operation": "WRITE"}})
    (folder / "_delta_log" / "_last_checkpoint").write_text(json.dumps({"version": 9}))
    with pytest.raises(FencedError, match="gone"):
        append(log, 1, "mine")
    assert versions(folder) == [0, 9]


def test_a_commit_that_somebody_replaces_is_missed(folder: Path) -> None:
    """Spark renames its file into place: between its look and its rename another commit may have come."""
    log = DeltaLog(folder, 0)
    assert isinstance(append(log, 1, "mine"), Appended)
    log.check()
    theirs = folder / "theirs.json"
    theirs.write_text(json.dumps({"commitInfo": {"operation": "OPTIMIZE"}}))
    theirs.rename(folder / "_delta_log" / f"{1:020}.json")
    with pytest.raises(RetriableError, match="replaced"):
        append(log, 2, "mine, too")
    with pytest.raises(RetriableError, match="replaced"):
        log.check()
    assert versions(folder) == [0, 1]


def test_a_commit_that_is_replaced_after_the_next_ones_is_missed_too(folder: Path) -> None:
    log = DeltaLog(folder, 0)
    for sequence in range(1, 4):
        assert isinstance(append(log, sequence, "mine"), Appended)
    theirs = folder / "theirs.json"
    theirs.write_text(json.dumps({"commitInfo": {"operation": "OPTIMIZE"}}))
    (folder / "_delta_log" / f"{1:020}.json").unlink()
    log.check()  # Delta removes what is old
    theirs.rename(folder / "_delta_log" / f"{2:020}.json")
    with pytest.raises(RetriableError, match=r"commit 2 .* replaced"):
        append(log, 4, "mine, too")
    assert versions(folder) == [0, 2, 3]


def test_a_folder_that_is_made_anew_is_no_longer_this_table(folder: Path) -> None:
    log = DeltaLog(folder, 0)
    assert isinstance(append(log, 1, "mine"), Appended)
    (folder / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(RetriableError, match="replaced"):
        append(log, 2, "mine, too")


def test_a_line_of_the_log_ends_at_a_line_feed_alone(folder: Path) -> None:
    log = DeltaLog(folder, 0)
    said = json.dumps({"commitInfo": {"userMetadata": "a\u2028b\u0085c"}}, ensure_ascii=False)
    (folder / "_delta_log" / f"{1:020}.json").write_text(
        said + "\n" + json.dumps({"txn": {"appId": "app", "version": 5}}), "utf-8"
    )
    assert append(log, 5, "mine") == AlreadyAppended()
    assert next(iter(LogFolder(folder / "_delta_log").newest_commits(1))).user_metadata == "a\u2028b\u0085c"


def test_a_bound_is_one_whatever_stands_where_it_is_cut(folder: Path) -> None:
    texts = ["x" * 32 + "\U0010ffff" + "y", "x" * 33, "x" * 32, "é" * 40]
    for text in texts:
        statistics = json.loads(data_file(folder, {"position": text}).statistics)
        assert statistics["minValues"]["position"] <= text <= statistics["maxValues"]["position"]


def test_a_file_that_was_begun_is_not_left(folder: Path) -> None:
    def parts() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"batch": 1}], schema=SCHEMA)
        raise OSError(errno.ENOSPC, "no space left")

    with pytest.raises(OSError, match="no space"):
        write_data_file(folder, SCHEMA, parts(), statistics_of=["batch"], dictionaries=["batch"])
    assert not list(folder.glob("*.parquet"))


_PARENT = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from pipelines.bronze.data_files import end_with_parent
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=end_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


def test_a_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    os.kill(worker.pid, signal.SIGINT)  # as the terminal does, to all at once
    assert worker.is_running()
    parent.kill()
    parent.communicate()
    gone, _ = psutil.wait_procs([worker], timeout=20)
    assert gone == [worker]
