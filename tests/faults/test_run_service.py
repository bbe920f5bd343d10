"""`strandline run` as a service: what fails above bronze does not end it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from processes import environment
from pymongo.database import Database
from s3_server import free_port

pytestmark = pytest.mark.long
Db = Database[dict[str, Any]]


def started(uri: str, database: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    env = environment(uri, database) | {
        "STRANDLINE_CAPTURE__CONNECT_BACKOFF_INITIAL_DELAY_MS": "200",
        "STRANDLINE_CAPTURE__ERRORS_RETRY_DELAY_MAX_MS": "1000",
        "STRANDLINE_GOLD__SQL_DIR": str(folder / "gold"),
        "STRANDLINE_LAKE__ROOT": str(folder / "lake"),
    }
    command = [sys.executable, "-m", "strandline.cli", "run", "--health-port", str(port)]
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(command, env=env, stderr=said, stdout=said, cwd=folder)


def state(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/state") as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def until(true: Callable[[], bool], service: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + 240
    while True:
        assert service.poll() is None, said.read_text()
        try:
            if true():
                return
        except OSError:  # the port is not open yet
            pass
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.5)


def inserts(folder: Path) -> int:
    rows = DeltaTable(str(folder / "lake" / "bronze" / "test")).to_pyarrow_table(columns=["op"])
    return sum(op == "c" for op in rows["op"].to_pylist())


def test_a_failed_node_of_gold_and_a_failed_silver_do_not_end_the_service(
    mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    gold, said, port = tmp_path / "gold", tmp_path / "said", free_port()
    gold.mkdir()
    broken = "-- materialized: table\nselect raise_error('no') as a from silver.people"
    (gold / "people.sql").write_text(broken, encoding="utf-8")
    database.people.insert_one({"_id": 1})
    service = started(mongo_uri, database.name, tmp_path, port)
    try:
        until(lambda: "gold" in state(port)["failing"], service, said)
        assert "gold.people" in state(port)["failing"]["gold"]
        database.people.insert_one({"_id": 2})
        until(lambda: inserts(tmp_path) == 1, service, said)
        (gold / "people.sql").write_text("-- materialized: table\nselect * from silver.people", encoding="utf-8")
        until(lambda: state(port)["failing"] == {}, service, said)
        silver = tmp_path / "lake" / "silver" / "people"
        silver.rename(tmp_path / "aside")
        silver.write_text("in the way")
        database.people.insert_one({"_id": 3})
        until(lambda: "silver" in state(port)["failing"] and inserts(tmp_path) == 2, service, said)
        silver.unlink()
        (tmp_path / "aside").rename(silver)
        until(lambda: state(port)["failing"] == {}, service, said)
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0, said.read_text()
    finally:
        service.kill()
        service.wait(10)
    lines = said.read_text().splitlines()
    assert [line for line in lines if "Traceback" in line] == []
    assert any("gold works again" in line for line in lines)
    assert any("silver works again" in line for line in lines)
