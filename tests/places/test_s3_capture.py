"""Capture into a lake on S3 through delta-rs, without Java: every event is there once, whatever the store does."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pymongo.database import Database
from s3_proxy import S3Proxy, s3_proxy
from s3_server import BUCKET, S3Server, free_port, s3_server
from without_java import COMMAND, output_of, source_of, strandline

from strandline.bronze.envelope import SCHEMA
from strandline.io.delta_log.append_result import AlreadyAppended, Appended
from strandline.io.delta_log.followed_table import FollowedTable
from strandline.io.delta_log.log_commit import commit_info, put_commit
from strandline.io.delta_log.object_store import StoreFailure, StoreOptions
from strandline.io.delta_log.parquet_file import write_data_file
from strandline.io.delta_log.sorted_rewrite import _batches, sort_files
from strandline.io.delta_log.store_folder import StoreFolder
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.query import Query
from strandline.model.tables import Lake, TableName

Db = Database[dict[str, Any]]
TABLE, NOTES = TableName("bronze", "s"), TableName("control", "notes")
_COMMIT = r"PUT .*/_delta_log/0\d+\.json"
ROWS = pa.schema([("batch", pa.int64()), ("position", pa.string())])


@pytest.fixture
def root() -> str:
    """A new lake's root."""
    return f"s3://{BUCKET}/{uuid4().hex}"


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(s3) as between:
        yield between


def lake_at(root: str, endpoint: str) -> dict[str, str]:
    """Settings that name the lake, as environment variables."""
    return {
        "STRANDLINE_LAKE__ROOT": root,
        "STRANDLINE_LAKE__S3_ENDPOINT": endpoint,
        "STRANDLINE_LAKE__S3_REGION": "us-east-1",
    }


def tables_at(root: str, endpoint: str) -> DeltaRsTables:
    return DeltaRsTables(Lake(root), StoreOptions(endpoint, "us-east-1"))


def created(root: str, endpoint: str, **properties: str) -> FollowedTable:
    tables = tables_at(root, endpoint)
    tables.create_table(TABLE, "batch BIGINT, position STRING", properties=properties)
    return FollowedTable.open(tables.folder(TABLE))


def append(table: FollowedTable, sequence: int, proof: str, app_id: str = "app") -> Appended | AlreadyAppended:
    rows = [pa.RecordBatch.from_pylist([{"batch": sequence, "position": "x"}], schema=ROWS)]
    file = write_data_file(table.folder, ROWS, rows, statistics_of=["batch"], dictionaries=[])
    return table.append_once([file], app_id=app_id, sequence=sequence, proof=proof)


def batches(folder: Any) -> list[int]:
    return sorted(pa.table(folder.table().to_pyarrow_table(columns=["batch"]))["batch"].to_pylist())


def test_the_whole_life_of_a_source(s3: S3Server, mongo_uri: str, database: Db, tmp_path: Path, root: str) -> None:
    told = partial(output_of, tmp_path, **source_of(mongo_uri, database), **lake_at(root, s3.endpoint))
    database["orders"].insert_many([{"_id": number} for number in range(50)])
    assert "50 snapshot documents landed" in told("capture", "--once")
    database["orders"].update_many({"_id": {"$lt": 5}}, {"$set": {"a": 1}})
    assert "5 events" in told("capture", "--once")
    assert "0 events" in told("capture", "--once")
    assert "is stopped" in told("stop")
    moved = json.loads(told("offsets", "alter", "--to", "1", "--json"))
    assert (moved["direction"], moved["events"]) == ("back", 5)
    assert "may run" in told("start")
    assert "5 events" in told("capture", "--once")
    (snapshot,) = json.loads(told("snapshot", "list", "--json"))
    assert (snapshot["state"], snapshot["documents"]) == ("completed", 50)
    (check,) = json.loads(told("snapshot", "verify", "--json"))
    assert (check["holds"], check["rows"]) == (True, 50)
    assert f"{root}/bronze/test" in told("doctor", "--no-spark")
    tables = tables_at(root, s3.endpoint)
    assert TableName("control", "notifications") in tables.names("control")
    rows = tables.query(Query(TableName("bronze", "test")).select("position").where(("op", "=", "u")))
    assert len({row["position"] for row in rows}) == 5


def test_a_file_that_another_request_creates_without_end_is_one_line(proxy: S3Proxy, root: str) -> None:
    folder = tables_at(root, proxy.endpoint).folder(TABLE)
    proxy.answer_conflict("PUT .*/marked", 3)
    assert folder.create("marked", b"a")
    assert proxy.conflicts == 3
    proxy.answer_conflict("PUT .*/other", 1_000)
    with pytest.raises(StoreFailure, match=r"^other does not appear") as failed:
        folder.create("other", b"a")
    assert "\n" not in str(failed.value)
    assert folder.read("other") is None


def test_a_rewrite_reads_a_large_file_in_parts(proxy: S3Proxy, root: str) -> None:
    folder = tables_at(root, proxy.endpoint).folder(TABLE)
    rows = pa.table({"text": [f"{number:06}" * 200 for number in range(10_000)]})
    with folder.writing("large.parquet") as file:
        pq.write_table(rows, file, compression="none", use_dictionary=False, row_group_size=5_000)
    assert sum(batch.num_rows for batch in _batches(folder.source("large.parquet"), rows.schema)) == 10_000
    assert proxy.largest_answer <= 8 << 20, "the file has 12 MB"


@pytest.mark.parametrize("races", [200])
def test_of_two_processes_one_gets_each_number(s3: S3Server, tmp_path: Path, root: str, races: int) -> None:
    table = created(root, s3.endpoint, **{"delta.checkpointInterval": "50"})
    spawned, until = multiprocessing.get_context("spawn"), time.time() + 4
    racers = [
        spawned.Process(target=_race, args=(table.folder, name, until, races, tmp_path / name)) for name in ("a", "b")
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(300)
    assert [racer.exitcode for racer in racers] == [0, 0]
    won = [json.loads((tmp_path / name).read_text()) for name in ("a", "b")]
    assert sorted(won[0] + won[1]) == list(range(1, races + 1))
    assert batches(table.folder) == sorted([*range(1, races + 1)] * 3)
    assert table.log.checkpoint() > 0


def _race(folder: StoreFolder, name: str, until: float, races: int, results: Path) -> None:
    table, won = FollowedTable.open(folder), []
    time.sleep(max(0.0, until - time.time()))
    for sequence in range(1, races + 1):
        if isinstance(append(table, sequence, f"{name}:{sequence}"), Appended):
            won.append(sequence)
        append(table, sequence, f"{name}:own:{sequence}", f"own:{name}")
    results.write_text(json.dumps(won))


def test_a_commit_whose_answer_is_lost_is_known_as_its_own(proxy: S3Proxy, root: str) -> None:
    table, tables = created(root, proxy.endpoint), tables_at(root, proxy.endpoint)
    tables.create_table(NOTES, "id STRING, n BIGINT")

    proxy.lose_answers(_COMMIT, 1)
    assert append(table, 1, "mine") == Appended(1, None)
    assert proxy.lost == 1
    assert batches(table.folder) == [1]

    proxy.lose_answers(_COMMIT, 1)
    assert put_commit(table.folder, table.version + 1, [commit_info("TEST", {})])
    assert not put_commit(table.folder, table.version + 1, [commit_info("TEST", {})])

    proxy.lose_answers(_COMMIT, 1)
    rows = pa.table({"id": ["a"], "n": [1]}, schema=pa.schema([("id", pa.string()), ("n", pa.int64())]))
    tables.append_rows(NOTES, rows)
    proxy.lose_answers(_COMMIT, 1)
    tables.insert_rows(NOTES, "id STRING, n BIGINT", [{"id": "b", "n": 2}], "id")
    assert sorted(row["id"] for row in tables.query(Query(NOTES).select("id"))) == ["a", "b"]
    assert not list(proxy.orders.glob("lose-*")), "every one of these answers was lost"


def test_a_store_that_replaces_objects_is_refused(
    proxy: S3Proxy, mongo_uri: str, database: Db, tmp_path: Path, root: str
) -> None:
    proxy.replace_objects()
    done = strandline(tmp_path, "capture", "--once", **source_of(mongo_uri, database), **lake_at(root, proxy.endpoint))
    _refused(done, 2, "two writers can replace each other's commits")
    assert not list((proxy.server.folder / BUCKET / root.rpartition("/")[2]).rglob("*.json")), "nothing was written"


@pytest.mark.parametrize(
    ("what", "code", "line"),
    [
        ("bucket", 2, "there is no bucket for s3://no-such-bucket/lake"),
        ("key", 2, "may not be read or written"),
        ("server", 75, "does not answer"),
    ],
)
def test_a_wrong_place_is_one_line(
    s3: S3Server, mongo_uri: str, database: Db, tmp_path: Path, root: str, what: str, code: int, line: str
) -> None:
    place = lake_at("s3://no-such-bucket/lake" if what == "bucket" else root, s3.endpoint)
    if what == "key":
        place["AWS_SECRET_ACCESS_KEY"] = "wrong"
    if what == "server":
        place["STRANDLINE_LAKE__S3_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"
    for command in (("capture", "--once"), ("offsets", "show")):
        _refused(strandline(tmp_path, *command, **source_of(mongo_uri, database), **place), code, line)


def _refused(done: subprocess.CompletedProcess[str], code: int, line: str) -> None:
    lines = [each for each in done.stderr.splitlines() if each.startswith("strandline:")]
    assert (done.returncode, len(lines), "Traceback" in done.stderr) == (code, 1, False), done.stderr
    assert line in lines[0]
    assert "→" in lines[0]


def test_capture_goes_on_when_the_store_was_away(
    mongo_uri: str,
    database: Db,
    tmp_path: Path,
    root: str,
    s3: S3Server,  # noqa: ARG001  # why: its credentials
) -> None:
    """The server is killed in the middle of a stream, and comes back after a minute. Each failure is one line."""
    folder, port = tmp_path / "objects", free_port()
    source = source_of(mongo_uri, database)
    with s3_server(folder, port) as server:
        place = source | lake_at(root, server.endpoint)
        output_of(tmp_path, "capture", "--once", **place)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "STRANDLINE"))}
        environ = kept | place | {"PATH": str(tmp_path), "STRANDLINE_SOURCE__NAME": "test"}
        with (tmp_path / "said").open("w") as said:
            capture = subprocess.Popen([str(COMMAND), "capture"], env=environ, cwd=tmp_path, stderr=said, stdout=said)
        try:
            _insert(database, range(200))
            tables, deadline = tables_at(root, server.endpoint), time.monotonic() + 120
            while len(_inserted(tables)) < 200 and time.monotonic() < deadline:
                assert capture.poll() is None, (tmp_path / "said").read_text()
                time.sleep(1)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(10)
            _insert(database, range(200, 300))
            time.sleep(60)
            assert "attempt 3 follows" in (tmp_path / "said").read_text()
            with s3_server(folder, port):
                _insert(database, range(300, 400))
                deadline = time.monotonic() + 90
                while len(seen := _inserted(tables)) < 400 and time.monotonic() < deadline:
                    assert capture.poll() is None, (tmp_path / "said").read_text()
                    time.sleep(1)
                capture.send_signal(signal.SIGTERM)
                assert capture.wait(60) == 0, (tmp_path / "said").read_text()
                assert "Traceback" not in (tmp_path / "said").read_text()
                assert len(seen) == len(set(seen)) == 400
                assert len(_inserted(tables)) == 400
        finally:
            capture.kill()
            capture.wait(10)


def _insert(database: Db, numbers: range) -> None:
    for number in numbers:
        database["orders"].insert_one({"_id": number})
        time.sleep(0.01)


def _inserted(tables: DeltaRsTables) -> list[str]:
    bronze = TableName("bronze", "test")
    return [row["position"] for row in tables.query(Query(bronze).select("position").where(("op", "=", "c")))]


def test_files_are_sorted_by_collection(s3: S3Server, root: str) -> None:
    """The rewrite of `maintain`: same rows, one file, and the old files are there until VACUUM."""
    tables = tables_at(root, s3.endpoint)
    ddl = ", ".join(f"{field.name} {_SQL[str(field.type)]}" for field in SCHEMA if str(field.type) in _SQL)
    tables.create_table(TABLE, ddl)
    schema = pa.schema([field for field in SCHEMA if str(field.type) in _SQL])
    table = FollowedTable.open(tables.folder(TABLE))
    for number in range(4):
        row = {"db": "d", "collection": f"c{number % 2}", "position": f"{9 - number}"}
        part = pa.RecordBatch.from_pylist([row], schema=schema)
        file = write_data_file(table.folder, schema, [part], statistics_of=["db", "collection"], dictionaries=[])
        table.append_once([file], app_id="app", sequence=number, proof=str(number))
    before = pa.table(table.folder.table().to_pyarrow_table(columns=["collection", "position"]))
    assert sort_files(table.folder) == (4, 1)
    assert sort_files(table.folder) == (0, 0)
    after = pa.table(table.folder.table().to_pyarrow_table(columns=["collection", "position"]))
    assert after.equals(before.take(pc.sort_indices(before, [("collection", "ascending"), ("position", "ascending")])))
    assert len(table.folder.table().file_uris()) == 1


_SQL = {"string": "STRING", "int64": "BIGINT", "int32": "INT", "bool": "BOOLEAN"}
