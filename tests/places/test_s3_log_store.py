"""Two Spark drivers on S3: every commit of both is there, once, whatever happens to the answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from processes import QUICK_JVM
from s3_proxy import S3Proxy, s3_proxy
from s3_server import BUCKET, REGION, S3Server, free_port
from shared_jvm import FEW_ROWS

from strandline.io.delta_log.object_store import StoreOptions
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.tables import Lake, TableName

RACES = int(os.environ.get("RACES", "10"))
"""Appends and MERGEs of each driver. ``RACES=1000`` takes most of an hour."""
_RACES_OF_A_TABLE = 50
"""MERGEs of each driver into one table: a MERGE reads every file, and each adds one."""
_MANY = 200
"""So many `RACES` pay for a JVM that optimizes."""
APPENDED = TableName("silver", "appended")
_COMMIT = r"PUT .*/_delta_log/0\d+\.json"

# Arguments: root, endpoint, number of the driver, races, races of a table, a file that begins the race. Prints what it
# committed.
_DRIVER = """
import sys, time
from pathlib import Path
from strandline.io.spark.conflicts import LOST_RACES
from strandline.io.tables.ddl import schema_of
from strandline.jobs.context import open_context
from strandline.model.tables import TableName
from strandline.settings.configuration import Settings
root, endpoint, driver, races, of_a_table, begin = sys.argv[1:]
ctx = open_context(Settings(lake={"root": root, "s3_endpoint": endpoint, "s3_region": "us-east-1"}))
appended, schema = TableName("silver", "appended"), schema_of("driver INT, number INT")
ctx.tables.create(appended, schema)
print("opened", flush=True)
while not Path(begin).exists():
    time.sleep(0.05)
for number in range(int(races)):
    row = ctx.spark.createDataFrame([(int(driver), number)], "driver INT, number INT").coalesce(1)
    ctx.tables.append(appended, row)
    print(f"appended {number}", flush=True)
    merged = TableName("silver", f"merged_{number // int(of_a_table)}")
    if number % int(of_a_table) == 0:
        ctx.tables.create(merged, schema)
        Path(f"{begin}-{number}-{driver}").touch()
        while number and not all(Path(f"{begin}-{number}-{each}").exists() for each in (0, 1)):
            time.sleep(0.05)
    while True:
        try:
            assert ctx.tables.insert_missing(merged, row, "driver", "number") == 1
            break
        except LOST_RACES:  # more often than it is repeated by itself: the other driver merges all the time
            pass
    print(f"merged {number}", flush=True)
"""


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(s3) as between:
        yield between


def driver(root: str, endpoint: str, number: int, races: int, begin: Path) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    environ |= {"STRANDLINE_SPARK__CONF": json.dumps(FEW_ROWS)} | (QUICK_JVM if RACES < _MANY else {})
    return subprocess.Popen(
        [sys.executable, "-c", _DRIVER, root, endpoint, str(number), str(races), str(_RACES_OF_A_TABLE), str(begin)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str], seconds: float = 3_000) -> list[str]:
    """Wait for a driver that must succeed. Return what it printed."""
    said, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors[-3_000:]
    return said.splitlines()


def rows_of(root: str, endpoint: str, table: TableName) -> list[tuple[int, int]]:
    folder = DeltaRsTables(Lake(root), StoreOptions(endpoint, REGION)).folder(table)
    rows = pa.table(folder.table().to_pyarrow_table())
    return sorted(zip(rows["driver"].to_pylist(), rows["number"].to_pylist(), strict=True))


def commits_of(s3: S3Server, root: str, table: TableName) -> int:
    folder = s3.folder / BUCKET / root.rpartition("/")[2] / table.layer / table.name / "_delta_log"
    return len(list(folder.glob("0*.json")))


def merged(part: int = 0) -> TableName:
    return TableName("silver", f"merged_{part}")


def new_root() -> str:
    return f"s3a://{BUCKET}/{uuid4().hex}"


def test_of_two_drivers_every_commit_is_there_once(
    s3: S3Server, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    root, begin = new_root(), tmp_path / "begin"
    drivers = [driver(root, s3.endpoint, number, RACES, begin) for number in range(2)]
    for one in drivers:
        assert one.stdout is not None
        assert one.stdout.readline() == "opened\n", one.communicate()[1][-3_000:]
    begin.touch()
    started = time.monotonic()
    for one in drivers:
        assert len(ended(one)) == 2 * RACES
    parts = range(0, RACES, _RACES_OF_A_TABLE)
    races_of = {merged(part): range(begun, min(begun + _RACES_OF_A_TABLE, RACES)) for part, begun in enumerate(parts)}
    for table, races in {APPENDED: range(RACES), **races_of}.items():
        assert rows_of(root, s3.endpoint, table) == [(number, race) for number in range(2) for race in races]
        assert commits_of(s3, root, table) == 2 * len(races) + 1, "one commit creates the table"
    seconds = time.monotonic() - started
    record_property("found", f"{4 * RACES} commits of two Spark drivers on S3 in {seconds:.0f} s")


def test_a_commit_whose_answer_is_lost_is_not_made_twice(proxy: S3Proxy, tmp_path: Path) -> None:
    root, begin = new_root(), tmp_path / "begin"
    one = driver(root, proxy.endpoint, 0, 6, begin)
    assert one.stdout is not None
    assert one.stdout.readline() == "opened\n", one.communicate()[1][-3_000:]
    proxy.lose_answers(_COMMIT, 4)
    begin.touch()
    ended(one)
    assert proxy.lost == 4
    for table in (APPENDED, merged()):
        assert rows_of(root, proxy.endpoint, table) == [(0, race) for race in range(6)]
        assert commits_of(proxy.server, root, table) == 7


def test_a_killed_driver_leaves_whole_commits(s3: S3Server, tmp_path: Path) -> None:
    root, begin = new_root(), tmp_path / "begin"
    begin.touch()
    killed = driver(root, s3.endpoint, 0, 1_000, begin)
    assert killed.stdout is not None
    said = [killed.stdout.readline() for _ in range(8)]
    os.killpg(killed.pid, signal.SIGKILL)
    rest, errors = killed.communicate()
    assert said[0] == "opened\n", errors[-3_000:]
    told = [line.split() for line in (*said[1:], *rest.splitlines())]
    ended(driver(root, s3.endpoint, 1, 2, begin))
    for table, verb in ((APPENDED, "appended"), (merged(), "merged")):
        rows, reported = rows_of(root, s3.endpoint, table), [int(number) for word, number in told if word == verb]
        of_killed = [number for who, number in rows if who == 0]
        assert of_killed[: len(reported)] == reported, "nothing that was reported is lost"
        assert of_killed == list(range(len(of_killed)))
        assert len(of_killed) <= len(reported) + 1
        assert [number for who, number in rows if who == 1] == [0, 1]


def _replace(place: dict[str, str], proxy: S3Proxy) -> None:
    proxy.replace_objects()
    place["STRANDLINE_LAKE__S3_ENDPOINT"] = proxy.endpoint


_PLACES: dict[str, tuple[Callable[[dict[str, str], S3Proxy], Any], int, str]] = {
    "replaces": (_replace, 2, "ignores conditional PUT"),
    "bucket": (lambda place, _: place.update(STRANDLINE_LAKE__ROOT="s3a://no-such-bucket/lake"), 2, "no bucket"),
    "key": (lambda place, _: place.update(AWS_SECRET_ACCESS_KEY="wrong"), 2, "credentials"),
    "server": (
        lambda place, _: place.update(STRANDLINE_LAKE__S3_ENDPOINT=f"http://127.0.0.1:{free_port()}"),
        75,
        "does not answer",
    ),
}


@pytest.mark.parametrize("what", _PLACES)
def test_a_wrong_place_is_one_line_before_a_table_is_written(proxy: S3Proxy, tmp_path: Path, what: str) -> None:
    root = new_root()
    change, code, line = _PLACES[what]
    place = {
        "STRANDLINE_LAKE__ROOT": root,
        "STRANDLINE_LAKE__S3_ENDPOINT": proxy.server.endpoint,
        "STRANDLINE_LAKE__S3_REGION": REGION,
    }
    change(place, proxy)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("strandline")), "silver"],
        env=os.environ | QUICK_JVM | place,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [each for each in done.stderr.splitlines() if each.startswith("strandline:")]
    assert (done.returncode, len(lines), "Traceback" in done.stderr) == (code, 1, False), done.stderr
    assert line in lines[0]
    assert "\tat " not in done.stderr, "no Java stack trace"
    assert not list((proxy.server.folder / BUCKET / root.rpartition("/")[2]).rglob("*.json"))
