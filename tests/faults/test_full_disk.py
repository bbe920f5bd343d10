"""The lake's disk is full for a while: capture waits, goes on, and every event is in bronze once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from processes import environment
from prometheus_client.parser import text_string_to_metric_families
from pymongo.database import Database
from s3_server import free_port

Db = Database[dict[str, Any]]
only_root_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk of a few MB")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "strandline-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def started(uri: str, database: str, root: Path, engine: str, said: Path, **more: str) -> subprocess.Popen[bytes]:
    env = environment(uri, database) | {
        "STRANDLINE_CAPTURE__ENGINE": engine,
        "STRANDLINE_CAPTURE__CONNECT_BACKOFF_INITIAL_DELAY_MS": "500",
        "STRANDLINE_CAPTURE__ERRORS_RETRY_DELAY_MAX_MS": "1000",
        "STRANDLINE_CAPTURE__HEARTBEAT_INTERVAL_MS": "1000",
        "STRANDLINE_LAKE__ROOT": str(root),
        **more,
    }
    with said.open("wb") as out:
        return subprocess.Popen([sys.executable, "-m", "strandline.cli", "capture"], env=env, stderr=out, stdout=out)


def fill(disk: Path) -> Path:
    """Write a file until no block is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        for size in (1 << 20, 1 << 12):
            with suppress(OSError):
                while True:
                    file.write(os.urandom(size))
    return ballast


def keys_in(root: Path) -> list[str]:
    """Keys of the inserts and READs in bronze."""
    folder = root / "bronze" / "test"
    if not DeltaTable.is_deltatable(str(folder)):
        return []
    rows = DeltaTable(str(folder)).to_pyarrow_table(columns=["op", "key"]).to_pylist()
    return [row["key"] for row in rows if row["op"] in ("c", "r")]


def until(true: Callable[[], bool], process: subprocess.Popen[bytes], said: Path, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.3)


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {sample.name: sample.value for family in families for sample in family.samples}


def ready(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


@only_root_mounts
@pytest.mark.parametrize("engine", ["native", pytest.param("spark", marks=pytest.mark.long)])
def test_capture_goes_on_when_a_full_disk_has_room_again(
    mongo_uri: str, database: Db, tmp_path: Path, disk: Path, engine: str
) -> None:
    root, said, port = disk / "lake", tmp_path / "said", free_port()
    database.a.insert_many([{"_id": number} for number in range(10)])
    capture = started(mongo_uri, database.name, root, engine, said, STRANDLINE_METRICS__PORT=str(port))
    try:
        until(lambda: len(keys_in(root)) == 10, capture, said)
        ballast = fill(disk)
        database.a.insert_many([{"_id": number, "text": os.urandom(100).hex()} for number in range(10, 2_000)])
        until(lambda: "attempt 3 follows" in said.read_text(), capture, said)
        counted = scraped(port)
        assert counted["strandline_retries_total"] >= 2
        assert counted["strandline_record_failures_total"] >= counted["strandline_failures_logged_total"] >= 2
        assert counted["strandline_behind_source_seconds"] > 0
        assert ready(port)[0] == 503
        assert "No space left" in ready(port)[1]
        ballast.unlink()
        until(lambda: len(keys_in(root)) >= 2_000, capture, said)
        until(lambda: ready(port) == (200, "ok\n"), capture, said)
        capture.send_signal(signal.SIGTERM)
        assert capture.wait(60) == 0, said.read_text()
    finally:
        capture.kill()
        capture.wait(10)
    found = keys_in(root)
    assert (len(found), len(set(found))) == (2_000, 2_000), "nothing lost, nothing twice"
    lines = said.read_text().splitlines()
    assert [line for line in lines if "Traceback" in line or re.match(r"\s+at ", line)] == []
    failures = [line for line in lines if "cannot be" in line]
    assert len(failures) == len([line for line in lines if '"level": "WARNING"' in line]), "each failure is one line"
    assert "2,000" in lines[-1] or "1,990 events" in lines[-1], lines[-1]


@only_root_mounts
def test_the_retries_of_a_full_disk_end(mongo_uri: str, database: Db, tmp_path: Path, disk: Path) -> None:
    root, said = disk / "lake", tmp_path / "said"
    attempts = {"STRANDLINE_CAPTURE__CONNECT_MAX_ATTEMPTS": "3"}
    capture = started(mongo_uri, database.name, root, "native", said, **attempts)
    try:
        until(lambda: (root / "bronze" / "test" / "_delta_log").is_dir(), capture, said)
        database.a.insert_one({"_id": 1})
        until(lambda: len(keys_in(root)) == 1, capture, said)
        ballast = fill(disk)
        database.a.insert_one({"_id": 2})
        assert capture.wait(120) == 75, said.read_text()
    finally:
        capture.kill()
        capture.wait(10)
    lines = said.read_text().splitlines()
    assert [line for line in lines if line.startswith("strandline: ")] == lines[-1:], lines
    assert "cannot be" in lines[-1]
    assert len([line for line in lines if "follows in" in line]) == 2
    ballast.unlink()
    capture = started(mongo_uri, database.name, root, "native", said, **attempts)
    try:
        until(lambda: len(keys_in(root)) == 2, capture, said)
        capture.send_signal(signal.SIGTERM)
        assert capture.wait(60) == 0
    finally:
        capture.kill()
        capture.wait(10)
