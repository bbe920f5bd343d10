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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake

from strandline.errors import ConfigurationError, FencedError, RetriableError
from strandline.io.delta_log.append_result import AlreadyAppended, Appended, WriterEnded
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.followed_table import FollowedTable
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.parquet_file import DataFile, write_data_file
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.query import Query
from strandline.model.tables import Lake, TableName

TABLE = TableName("bronze", "s")
SCHEMA = pa.schema([("batch", pa.int64()), ("position", pa.string())])
PROPERTIES = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"}


def create(lake: Path, **more: str) -> FollowedTable:
    tables = DeltaRsTables(Lake(str(lake)))
    tables.create_table(TABLE, "batch BIGINT, position STRING", properties=PROPERTIES | more)
    return FollowedTable.open(LocalFolder(lake / "bronze" / "s"))


def data_file(folder: Path, *rows: dict[str, Any]) -> DataFile:
    parts = [pa.RecordBatch.from_pylist([row], schema=SCHEMA) for row in rows]
    return write_data_file(
        LocalFolder(folder), SCHEMA, parts, statistics_of=["batch", "position"], dictionaries=["batch"]
    )


def append(table: FollowedTable, sequence: int, proof: str, app_id: str = "app") -> Appended | AlreadyAppended:
    files = [data_file(table.folder.path, {"batch": sequence, "position": "x" * 40})]
    return table.append_once(files, app_id=app_id, sequence=sequence, proof=proof)


def batches(folder: Path) -> list[int]:
    return sorted(pa.table(DeltaTable(str(folder)).to_pyarrow_table(columns=["batch"]))["batch"].to_pylist())


def put(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    """A commit of another writer."""
    log = folder / "_delta_log"
    (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")


def actions(folder: Path, version: int) -> dict[str, Any]:
    found = LogFolder(LocalFolder(folder)).actions(version) or []
    return {name: said for action in found for name, said in action.items()}


def test_a_commit_names_its_file_its_transaction_and_its_proof(tmp_path: Path) -> None:
    table = create(tmp_path)
    rows = [{"batch": 1, "position": "b" * 40}, {"batch": 2, "position": "a" * 40}, {"batch": 3, "position": None}]
    landed = table.append_once([data_file(table.folder.path, *rows)], app_id="app", sequence=7, proof="mine")
    assert landed == Appended(rows=3, restored_at=None)
    found = actions(table.folder.path, 1)
    assert (found["txn"]["appId"], found["txn"]["version"]) == ("app", 7)
    assert found["commitInfo"]["userMetadata"] == "mine"
    added = found["add"]
    assert added["dataChange"] is True
    assert added["size"] == (table.folder.path / added["path"]).stat().st_size
    statistics = json.loads(added["stats"])
    assert statistics["nullCount"] == {"batch": 0, "position": 1}
    assert statistics["minValues"] == {"batch": 1, "position": "a" * 32}
    assert statistics["maxValues"]["position"] > "b" * 40, "a bound that is cut is still one"
    assert batches(table.folder.path) == [1, 2, 3]


def test_a_column_without_a_value_has_no_bounds(tmp_path: Path) -> None:
    statistics = json.loads(data_file(tmp_path, {"text": "x"}).statistics)
    assert (statistics["minValues"], statistics["maxValues"]) == ({}, {})
    assert statistics["nullCount"] == {"batch": 1, "position": 1}


def test_a_shortened_statistic_is_a_bound_for_every_character(tmp_path: Path) -> None:
    for text in ["x" * 32 + "\U0010ffff" + "y", "x" * 33, "x" * 32, "é" * 40]:
        statistics = json.loads(data_file(tmp_path, {"position": text}).statistics)
        assert statistics["minValues"]["position"] <= text <= statistics["maxValues"]["position"]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Any:
        yield pa.RecordBatch.from_pylist([{"batch": 1, "position": "x"}], schema=SCHEMA)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_data_file(LocalFolder(tmp_path), SCHEMA, failing(), statistics_of=["batch"], dictionaries=["batch"])
    assert not list(tmp_path.iterdir())


# scenario: E03
def test_a_sequence_is_taken_once_by_all_openers(tmp_path: Path) -> None:
    table = create(tmp_path)
    assert append(table, 5, "mine") == Appended(1, None)
    assert append(table, 5, "mine") == Appended(1, None)  # the answer was lost: the proof tells
    assert append(table, 5, "theirs") == AlreadyAppended()
    assert append(FollowedTable.open(table.folder), 4, "older") == AlreadyAppended()
    assert append(FollowedTable.open(table.folder), 5, "same") == AlreadyAppended()
    assert batches(table.folder.path) == [5]


def test_a_transaction_without_a_file_takes_its_sequence(tmp_path: Path) -> None:
    table = create(tmp_path)
    assert table.append_once([], app_id="app", sequence=2**62, proof="end") == Appended(0, None)
    assert append(FollowedTable.open(table.folder), 1, "late") == AlreadyAppended()


# scenario: Q03, Q05
def test_the_second_of_two_writers_of_a_sequence_adds_no_row(tmp_path: Path) -> None:
    rival = create(tmp_path)
    sleeper = FollowedTable.open(rival.folder)
    for sequence in (1, 2, 3):
        assert isinstance(append(rival, sequence, f"rival {sequence}"), Appended)
    for sequence in (1, 2, 3):
        assert append(sleeper, sequence, f"sleeper {sequence}") == AlreadyAppended()
    assert isinstance(append(sleeper, 1, "sleeper", app_id="another"), Appended)
    assert batches(rival.folder.path) == [1, 1, 2, 3]


def test_a_change_of_properties_does_not_stop_a_writer(tmp_path: Path) -> None:
    table, tables = create(tmp_path), DeltaRsTables(Lake(str(tmp_path)))
    for sequence in (1, 2):
        tables.set_properties(TABLE, {"strandline.note": f'a "{sequence}" \n'})
        assert append(table, sequence, f"p{sequence}") == Appended(1, None)
    assert tables.properties(TABLE)["strandline.note"] == 'a "2" \n'


def test_threads_of_one_writer_all_find_a_place(tmp_path: Path) -> None:
    table = create(tmp_path)

    def work(thread: int) -> None:
        for sequence in range(10):
            assert isinstance(append(table, sequence, f"{thread}:{sequence}", app_id=str(thread)), Appended)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert batches(table.folder.path) == sorted([*range(10)] * 4)
    assert not [file for file in (table.folder.path / "_delta_log").iterdir() if "tmp" in file.name]


def test_after_a_restore_a_writer_goes_on_and_transactions_stay_taken(tmp_path: Path) -> None:
    table = create(tmp_path, **{"delta.appendOnly": "false"})
    append(table, 1, "p1")
    append(table, 2, "p2")
    DeltaTable(str(table.folder.path)).restore(1)
    assert append(table, 3, "p3") == Appended(1, 3)
    assert batches(table.folder.path) == [1, 3]
    assert append(FollowedTable.open(table.folder), 2, "again") == AlreadyAppended()  # transactions are not taken back


def test_a_feature_that_delta_rs_does_not_write_ends_the_writer_and_the_next_one_is_refused(tmp_path: Path) -> None:
    table = create(tmp_path)
    features = ["appendOnly", "invariants", "changeDataFeed", "rowTracking", "domainMetadata"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    put(table.folder.path, 1, {"commitInfo": {"operation": "X"}}, {"protocol": protocol})
    for _ in range(2):  # another thread of this writer asks again
        with pytest.raises(WriterEnded, match=r"rowTracking.*another process gave it these; nothing is lost"):
            append(table, 1, "mine")
    with pytest.raises(ConfigurationError, match="rowTracking"):
        FollowedTable.open(table.folder)
    assert batches(table.folder.path) == []


def test_a_writer_that_slept_longer_than_the_log_is_kept_stops(tmp_path: Path) -> None:
    """Its commit would come before a checkpoint, and no reader looks there."""
    table = create(tmp_path)
    sleeper = FollowedTable.open(table.folder)
    for sequence in range(1, 4):
        append(table, sequence, f"p{sequence}")
    DeltaTable(str(table.folder.path)).create_checkpoint()
    for version in range(3):
        (table.folder.path / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises((FencedError, WriterEnded)):
        append(sleeper, 1, "late", "other")
    assert batches(table.folder.path) == [1, 2, 3]


def test_an_older_copy_of_the_table_gets_no_commit(tmp_path: Path) -> None:
    table = create(tmp_path)
    append(table, 1, "p1")
    shutil.copytree(table.folder.path, tmp_path / "copy")
    append(table, 2, "p2")
    shutil.rmtree(table.folder.path)
    shutil.copytree(tmp_path / "copy", table.folder.path)
    append(FollowedTable.open(table.folder), 2, "of another writer")
    with pytest.raises(WriterEnded, match="was replaced under this writer"):
        append(table, 3, "p3")
    assert batches(table.folder.path) == [1, 2]


def test_a_table_that_was_moved_away_is_not_begun_anew(tmp_path: Path) -> None:
    table = create(tmp_path)
    append(table, 1, "p1")
    table.folder.path.rename(tmp_path / "old")
    with pytest.raises(FileNotFoundError):
        data_file(table.folder.path, {"batch": 2})
    with pytest.raises(WriterEnded):
        table.append_once([], app_id="app", sequence=2, proof="p2")
    assert not table.folder.path.exists()


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_another_table_in_the_same_folder_gets_no_commit(tmp_path: Path, commits: int) -> None:
    table = create(tmp_path)
    append(table, 1, "p1")
    shutil.rmtree(table.folder.path)
    other = create(tmp_path)
    for sequence in range(commits):
        append(other, sequence, f"o{sequence}", "other")
    with pytest.raises(WriterEnded):
        append(table, 2, "p2")
    assert batches(table.folder.path) == list(range(commits))


def test_a_checkpoint_is_written_beside_the_appends(tmp_path: Path) -> None:
    table = create(tmp_path, **{"delta.checkpointInterval": "5"})
    for sequence in range(1, 14):
        append(table, sequence, f"p{sequence}")
    table.close()
    assert list((table.folder.path / "_delta_log").glob("*.checkpoint.parquet"))
    assert append(table, 14, "p14") == Appended(1, None)
    assert batches(table.folder.path) == list(range(1, 15))
    assert append(FollowedTable.open(table.folder), 14, "again") == AlreadyAppended()


def test_a_line_of_the_log_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    table = create(tmp_path)
    said = json.dumps({"commitInfo": {"userMetadata": "a\u2028b\u0085c"}}, ensure_ascii=False)
    taken = json.dumps({"txn": {"appId": "app", "version": 5}})
    (table.folder.path / "_delta_log" / f"{1:020}.json").write_text(f"{said}\n{taken}", "utf-8")
    assert append(table, 5, "mine") == AlreadyAppended()
    assert next(table.log.commits_after(-1)).user_metadata == "a\u2028b\u0085c"


def test_a_half_written_end_of_the_log_is_put_aside(tmp_path: Path) -> None:
    """As a power cut leaves it. Nobody was told of that commit or that checkpoint."""
    table = create(tmp_path)
    append(table, 1, "p1")
    log = table.folder.path / "_delta_log"
    (log / f"{2:020}.json").write_text("")
    (log / f".{2:020}.json.crc").write_text("Hadoop's checksum of that commit")
    (log / f"{1:020}.checkpoint.parquet").write_text("")
    (log / "_last_checkpoint").write_text('{"version":1,"size":4}')
    again = FollowedTable.open(table.folder)
    assert append(again, 2, "p2") == Appended(1, None)
    assert batches(table.folder.path) == [1, 2]
    assert not (log / f".{2:020}.json.crc").exists()


_FULL = """
import resource, signal, sys
from pathlib import Path
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.errors import RetriableError
from strandline.io.delta_log.followed_table import FollowedTable
table = FollowedTable.open(LocalFolder(Path(sys.argv[1])))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    table.append_once([], app_id="app", sequence=2, proof="p2")
except RetriableError as error:
    print(error)
"""


def test_a_full_disk_is_told_and_the_log_is_whole(tmp_path: Path) -> None:
    table = create(tmp_path)
    append(table, 1, "p1")
    run = subprocess.run(
        [sys.executable, "-c", _FULL, str(table.folder.path)], capture_output=True, text=True, check=False
    )
    assert "cannot be written" in run.stdout, run.stderr
    assert append(FollowedTable.open(table.folder), 2, "p2") == Appended(1, None)
    assert batches(table.folder.path) == [1, 2]


def _killed(folder: Path, when: str) -> None:
    table = FollowedTable.open(LocalFolder(folder))
    file = data_file(folder, {"batch": 2})
    if when == "after":
        table._commit([file], "app", 2, "p2")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("when", "again"), [("before", Appended(1, None)), ("after", AlreadyAppended())])
def test_a_writer_killed_around_its_commit_leaves_it_whole_or_absent(
    tmp_path: Path, when: str, again: Appended | AlreadyAppended
) -> None:
    table = create(tmp_path)
    append(table, 1, "p1")
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(table.folder.path, when))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert append(FollowedTable.open(table.folder), 2, "another writer") == again
    assert batches(table.folder.path) == [1, 2]


def _race(folder: Path, name: str, rounds: int, until: float, results: Path) -> None:
    table, won = FollowedTable.open(LocalFolder(folder)), []
    time.sleep(max(0.0, until - time.time()))
    for sequence in range(1, rounds + 1):
        if isinstance(append(table, sequence, f"{name}:{sequence}"), Appended):
            won.append(sequence)
        append(table, sequence, f"{name}:own:{sequence}", f"own:{name}")
    results.write_text(json.dumps(won))


# scenario: Q05
@pytest.mark.slow
@pytest.mark.parametrize("rounds", [60, pytest.param(400, marks=pytest.mark.long)])
def test_of_two_processes_one_gets_each_number(tmp_path: Path, rounds: int) -> None:
    table = create(tmp_path, **{"delta.checkpointInterval": "50"})
    spawned = multiprocessing.get_context("spawn")  # the library refuses a forked process
    until = time.time() + 4
    racers = [
        spawned.Process(target=_race, args=(table.folder.path, name, rounds, until, tmp_path / name)) for name in "ab"
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(240)
    assert [racer.exitcode for racer in racers] == [0, 0]
    won = [json.loads((tmp_path / name).read_text()) for name in "ab"]
    assert sorted(won[0] + won[1]) == list(range(1, rounds + 1))
    assert batches(table.folder.path) == sorted([*range(1, rounds + 1)] * 3)
    proofs = [commit.user_metadata for commit in table.log.commits_after(0)]
    assert len(set(proofs)) == 3 * rounds


# scenario: Q05
def test_a_writer_knows_its_commit_although_a_rival_has_taken_the_next_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    rival, commit = FollowedTable.open(table.folder), FollowedTable._commit

    def overtaken(self: FollowedTable, *arguments: Any) -> None:
        commit(self, *arguments)
        if self is table:
            assert append(rival, 2, "the rival's") == Appended(1, None)

    monkeypatch.setattr(FollowedTable, "_commit", overtaken)
    assert append(table, 1, "own") == Appended(1, None)
    assert append(table, 2, "own again") == AlreadyAppended()
    assert batches(table.folder.path) == [1, 2]


_TRACED = """
import sys
from pathlib import Path
from strandline.io.delta_log.local_folder import LocalFolder
import test_followed_table as test
from strandline.io.delta_log.followed_table import FollowedTable
test.append(FollowedTable.open(LocalFolder(Path(sys.argv[1]))), 1, "p")
"""


def test_a_file_is_on_the_disk_before_the_commit_names_it(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace, which no package of the project brings")
    table, trace = create(tmp_path), tmp_path / "trace"
    traced = [strace, "-f", "-y", "-o", str(trace), "-e", "trace=fsync,link,linkat"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [*traced, sys.executable, "-c", _TRACED, str(table.folder.path)]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        pytest.skip("strace may not trace on this machine")
    lines = [line for line in trace.read_text().splitlines() if str(table.folder.path) in line]
    (linked,) = [number for number, line in enumerate(lines) if "link" in line and f"{1:020}.json" in line]
    before, after = "\n".join(lines[:linked]), "\n".join(lines[linked + 1 :])
    assert ".zstd.parquet>" in before
    assert f"{table.folder.path}>" in before
    assert f"{1:020}.json>" in after
    assert "_delta_log>" in after


def test_the_log_cannot_be_read_for_a_while(tmp_path: Path) -> None:
    table = create(tmp_path)
    append(table, 1, "p1")
    log = table.folder.path / "_delta_log"
    log.rename(tmp_path / "away")
    with pytest.raises((RetriableError, FileNotFoundError)):
        table.append_once([], app_id="app", sequence=2, proof="p2")
    (tmp_path / "away").rename(log)
    assert append(table, 2, "p2") == Appended(1, None)


def test_the_largest_number_comes_from_statistics_if_all_files_have_them(tmp_path: Path) -> None:
    table, tables = create(tmp_path), DeltaRsTables(Lake(str(tmp_path)))
    newest = Query(TABLE).aggregate(batch=("max", "batch"))
    assert tables.query(newest) == [{"batch": None}]
    for sequence in (3, 1):
        append(table, sequence, f"p{sequence}")
    table.append_once([data_file(table.folder.path, {"position": "x"})], app_id="app", sequence=9, proof="p9")
    for file in table.folder.path.glob("*.parquet"):
        file.rename(file.with_suffix(".away"))
    assert tables.query(newest) == [{"batch": 3}]
    for file in table.folder.path.glob("*.away"):
        file.rename(file.with_suffix(".parquet"))
    write_deltalake(
        DeltaTable(str(table.folder.path)),
        pa.table({"batch": [7], "position": ["y"]}),
        mode="append",
        writer_properties=WriterProperties(default_column_properties=ColumnProperties(statistics_enabled="NONE")),
    )
    assert tables.query(newest) == [{"batch": 7}], "a file without statistics is read"
    assert tables.query(Query(TABLE).aggregate(position=("max", "position"))) == [{"position": "y"}]
