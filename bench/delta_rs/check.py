"""Appends through delta-rs: each is there once, none takes another writer's place, and what was reported survives."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable

from bench.delta_rs.files import StoredFile, TableFolder
from bench.delta_rs.table import DeltaRsTable
from pipelines.errors import FencedError
from pipelines.io.append_result import AlreadyAppended, Appended, WriterEnded

DAY = date(2026, 1, 1)
FILE_SCHEMA = pa.schema([("batch", pa.int64()), ("position", pa.string())])
SCHEMA = FILE_SCHEMA.append(pa.field("captured_on", pa.date32()))
PROPERTIES = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true", "strandline.source": "s"}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "bronze")


def create(uri: str, **more: str) -> DeltaRsTable:
    return DeltaRsTable.create(uri, SCHEMA, PROPERTIES | more)


def stored(folder: TableFolder, *batches: int) -> StoredFile:
    parts = [pa.RecordBatch.from_pylist([{"batch": n, "position": "x" * 40}], schema=FILE_SCHEMA) for n in batches]
    return folder.write(DAY, FILE_SCHEMA, parts, statistics_of=["batch", "position"], dictionaries=["batch"])


def append(table: DeltaRsTable, sequence: int, proof: str, app_id: str = "app") -> Appended | AlreadyAppended:
    return table.append_once([stored(table.folder, sequence)], app_id=app_id, sequence=sequence, proof=proof)


def batches(uri: str) -> list[int]:
    return sorted(pa.table(DeltaTable(uri).scan(columns=["batch"]))["batch"].to_pylist())


def text(uri: str, version: int) -> str:
    return (Path(uri) / "_delta_log" / f"{version:020}.json").read_text()


def test_a_table_is_created_once_and_says_what_its_creator_said(uri: str) -> None:
    first, second = create(uri), create(uri, other="x")
    assert (first.id, first.followed) == (second.id, second.followed)
    assert second.properties == PROPERTIES
    assert json.loads(text(uri, 0).splitlines()[1])["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 4}


def test_a_commit_holds_its_file_its_transaction_and_its_proof(uri: str) -> None:
    table = create(uri)
    landed = table.append_once([stored(table.folder, 7, 8, 9)], app_id="app", sequence=7, proof="p")
    assert landed == Appended(3, None)
    actions = {name: said for line in text(uri, 1).splitlines() for name, said in json.loads(line).items()}
    assert (actions["txn"]["appId"], actions["txn"]["version"]) == ("app", 7)
    assert actions["commitInfo"]["userMetadata"] == "p"
    assert actions["add"]["partitionValues"] == {"captured_on": "2026-01-01"}
    assert json.loads(actions["add"]["stats"])["maxValues"]["batch"] == 9
    assert batches(uri) == [7, 8, 9]


def test_a_sequence_is_taken_once_whoever_opens_the_table(uri: str) -> None:
    table = create(uri)
    assert append(table, 5, "mine") == Appended(1, None)
    assert append(table, 5, "mine") == Appended(1, None)  # the answer was lost: the proof tells
    assert append(table, 5, "theirs") == AlreadyAppended()
    assert append(DeltaRsTable.open(uri), 4, "older") == AlreadyAppended()
    assert append(DeltaRsTable.open(uri), 5, "same") == AlreadyAppended()
    assert batches(uri) == [5]


def test_a_transaction_without_a_file_fences(uri: str) -> None:
    table = create(uri)
    assert table.append_once([], app_id="app", sequence=2**62, proof="end") == Appended(0, None)
    assert append(DeltaRsTable.open(uri), 1, "late") == AlreadyAppended()


def test_a_handle_that_is_behind_goes_on_after_others(uri: str) -> None:
    behind, other = create(uri), create(uri)
    for sequence in (1, 2, 3):
        append(other, sequence, f"o{sequence}", "other")
    other.set_properties({"strandline.note": "x"})
    assert append(behind, 1, "mine") == Appended(1, None)
    assert behind.properties["strandline.note"] == "x"
    assert append(behind, 3, "late", "other") == AlreadyAppended()
    assert [commit.user_metadata for commit in behind.commits_after(0)] == ["mine", None, "o3", "o2", "o1"]


def test_properties_that_stand_there_cost_no_commit(uri: str) -> None:
    table = create(uri)
    for _ in range(2):
        table.set_properties({"strandline.note": 'a "b" \n'})
    assert table.followed == 1
    assert DeltaRsTable.open(uri).properties["strandline.note"] == 'a "b" \n'


def test_a_restore_between_two_appends_is_told(tmp_path: Path) -> None:
    uri = str(tmp_path / "bronze")
    table = DeltaRsTable.create(uri, SCHEMA, {"delta.enableChangeDataFeed": "true"})
    append(table, 1, "p1")
    append(table, 2, "p2")
    DeltaTable(uri).restore(1)
    assert append(table, 3, "p3") == Appended(1, 3)
    assert batches(uri) == [1, 3]
    assert append(DeltaRsTable.open(uri), 2, "again") == AlreadyAppended()  # transactions are not taken back


def test_a_table_that_was_moved_is_not_begun_anew(uri: str) -> None:
    table = create(uri)
    append(table, 1, "p1")
    Path(uri).rename(f"{uri}.old")
    with pytest.raises(FileNotFoundError):
        stored(table.folder, 2)
    with pytest.raises(WriterEnded):
        table.append_once([], app_id="app", sequence=2, proof="p2")
    assert not Path(uri).exists()


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_a_table_in_the_place_of_another_gets_nothing(uri: str, commits: int) -> None:
    table = create(uri)
    append(table, 1, "p1")
    shutil.rmtree(uri)
    other = create(uri)
    for sequence in range(commits):
        append(other, sequence, f"o{sequence}", "other")
    with pytest.raises(WriterEnded):
        append(table, 2, "p2")
    assert batches(uri) == list(range(commits))


def test_a_writer_that_slept_past_the_log_stops(uri: str) -> None:
    sleeper, table = create(uri), create(uri)
    for sequence in range(1, 4):
        append(table, sequence, f"p{sequence}")
    DeltaTable(uri).create_checkpoint()
    for version in range(3):
        (Path(uri) / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises((FencedError, WriterEnded)):
        append(sleeper, 1, "late", "other")


def test_a_checkpoint_is_written_beside_the_appends(uri: str) -> None:
    table = create(uri, **{"delta.checkpointInterval": "5"})
    for sequence in range(1, 14):
        append(table, sequence, f"p{sequence}")
    table.close()
    assert list((Path(uri) / "_delta_log").glob("*.checkpoint.parquet"))
    assert append(table, 14, "p14") == Appended(1, None)
    assert batches(uri) == list(range(1, 15))
    assert append(DeltaRsTable.open(uri), 14, "again") == AlreadyAppended()


def test_what_a_power_cut_left_half_written_is_put_aside(uri: str) -> None:
    table = create(uri)
    append(table, 1, "p1")
    log = Path(uri) / "_delta_log"
    (log / f"{2:020}.json").write_text("")
    (log / f"{1:020}.checkpoint.parquet").write_text("")
    (log / "_last_checkpoint").write_text('{"version":1,"size":4}')
    again = DeltaRsTable.open(uri)
    assert append(again, 2, "p2") == Appended(1, None)
    assert batches(uri) == [1, 2]


def test_a_half_written_data_file_is_removed(uri: str) -> None:
    table = create(uri)

    def failing() -> object:
        yield pa.RecordBatch.from_pylist([{"batch": 1, "position": "x"}], schema=FILE_SCHEMA)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        table.folder.write(DAY, FILE_SCHEMA, failing(), statistics_of=["batch"], dictionaries=["batch"])  # type: ignore[arg-type]  # why: it fails midway
    assert not list(Path(uri).rglob("*part-*.parquet"))


_FULL = """
import resource, signal, sys
from pipelines.errors import RetriableError
from bench.delta_rs.check import *
table = DeltaRsTable.open(sys.argv[1])
file = stored(table.folder, 2)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    table.append_once([file], app_id="app", sequence=2, proof="p2")
except RetriableError:
    print("told")
"""


def test_a_log_that_cannot_be_written_is_told_and_whole(uri: str) -> None:
    append(create(uri), 1, "p1")
    run = subprocess.run([sys.executable, "-c", _FULL, uri], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "told", run.stderr
    assert append(DeltaRsTable.open(uri), 2, "p2") == Appended(1, None)
    assert batches(uri) == [1, 2]


_KILLED = """
import os, signal, sys
from bench.delta_rs.check import *
table = DeltaRsTable.open(sys.argv[1])
file = stored(table.folder, 2)
if sys.argv[2] == "after":
    table._commit([file], "app", 2, "p2")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("when", "again"), [("before", Appended(1, None)), ("after", AlreadyAppended())])
def test_killed_about_the_commit(uri: str, when: str, again: Appended | AlreadyAppended) -> None:
    append(create(uri), 1, "p1")
    run = subprocess.run([sys.executable, "-c", _KILLED, uri, when], check=False)
    assert run.returncode == -signal.SIGKILL
    assert append(DeltaRsTable.open(uri), 2, "another writer") == again
    assert batches(uri) == [1, 2]


def _race(uri: str, name: str, until: float, results: str) -> None:
    table, won = DeltaRsTable.open(uri), []
    time.sleep(max(0.0, until - time.time()))
    for sequence in range(1, 201):
        landed = append(table, sequence, f"{name}:{sequence}")
        if isinstance(landed, Appended):
            won.append(sequence)
        append(table, sequence, f"{name}:own:{sequence}", f"own:{name}")
    Path(results).write_text(json.dumps(won))


def test_of_two_processes_one_gets_each_number(uri: str, tmp_path: Path) -> None:
    create(uri, **{"delta.checkpointInterval": "50"})
    spawned = multiprocessing.get_context("spawn")  # the library refuses a forked process
    until = time.time() + 4
    racers = [spawned.Process(target=_race, args=(uri, name, until, str(tmp_path / name))) for name in "ab"]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(240)
    assert [racer.exitcode for racer in racers] == [0, 0]
    won = [json.loads((tmp_path / name).read_text()) for name in "ab"]
    assert sorted(won[0] + won[1]) == list(range(1, 201))
    assert batches(uri) == sorted([*range(1, 201)] * 3)
    proofs = [commit.user_metadata for commit in DeltaRsTable.open(uri).commits_after(0)]
    assert len(proofs) == len(set(proofs)) == 600


def test_a_file_is_on_the_disk_before_the_commit_names_it(uri: str, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace")
    create(uri)
    trace = tmp_path / "trace"
    code = "import sys; from bench.delta_rs.check import *; append(DeltaRsTable.open(sys.argv[1]), 1, 'p')"
    traced = [strace, "-f", "-y", "-o", str(trace), "-e", "trace=fsync,link,linkat,mkdir"]
    if subprocess.run([*traced, sys.executable, "-c", code, uri], env=dict(os.environ), check=False).returncode != 0:
        pytest.skip("strace may not trace here")
    lines = [line for line in trace.read_text().splitlines() if uri in line]
    (linked,) = [number for number, line in enumerate(lines) if "link" in line and f"{1:020}.json" in line]
    before, after = "\n".join(lines[:linked]), "\n".join(lines[linked + 1 :])
    assert ".zstd.parquet>" in before
    assert "captured_on=2026-01-01>" in before
    assert f"{1:020}.json>" in after
    assert "_delta_log>" in after
