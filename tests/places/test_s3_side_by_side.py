"""`run`, `maintain`, `rebuild` and `reconcile --repair` at one lake on S3, each killed now and then."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from bson import Timestamp
from processes import environment, repeated
from pymongo.database import Database
from s3_server import BUCKET, REGION, S3Server

from strandline.io.delta_log.object_store import StoreOptions
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.query import Query
from strandline.model.tables import Lake, TableName

Db = Database[dict[str, Any]]
NAMES = ("a", "b", "c")
MINUTES = float(os.environ.get("MINUTES", "2"))
"""Time for which the commands work side by side. ``MINUTES=10 make places`` takes ten."""
_DONE, _KILLED, _REFUSED, _TRY_AGAIN = 0, -signal.SIGKILL, 2, 75


@dataclass
class Commands:
    """Commands of the program, and how each ended."""

    env: dict[str, str]
    cwd: Path
    ended: Counter[tuple[str, int]] = field(default_factory=Counter)
    try_again: Counter[str] = field(default_factory=Counter)
    """Last line of each command that ended with 75."""
    refused: list[str] = field(default_factory=list)
    """Commands that ended as they must not, with what they said."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "strandline.cli", *arguments]
        out = subprocess.DEVNULL
        return subprocess.Popen(
            command, env=self.env, cwd=self.cwd, stdout=out, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, *arguments: str, kill_after: float | None = None) -> int:
        """Run a command, and kill it with its JVM after some seconds."""
        process = self.start(*arguments)
        try:
            _, said = process.communicate(timeout=kill_after or 300)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, said = process.communicate()
        self.note(arguments[0], process.returncode, said)
        return process.returncode

    def note(self, name: str, code: int, said: str) -> None:
        with self.lock:
            self.ended[name, code] += 1
            is_stopped = name == "run" and code == _REFUSED and "is stopped → strandline start" in said
            expected = is_stopped or code in (_DONE, _KILLED, _TRY_AGAIN)
            if code == _TRY_AGAIN:
                self.try_again[said.strip()[-300:]] += 1
            if not expected or "Traceback" in said or "\tat " in said:
                self.refused.append(f"{name} ended with {code}:\n{said[-3000:]}")


def repeat(*jobs: Callable[[], None]) -> None:
    """Repeat each job in a thread of its own until the time is over."""
    end = time.monotonic() + MINUTES * 60

    def again(job: Callable[[], None]) -> None:
        while time.monotonic() < end:
            job()

    threads = [threading.Thread(target=again, args=[job]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def tokens_after(database: Db, newest: Timestamp) -> set[str]:
    """Resume tokens of all later events of the source, as the server gives them."""
    with database.watch(start_at_operation_time=Timestamp(newest.time, newest.inc + 1), batch_size=10_000) as stream:
        last = database.marker.insert_one({}).inserted_id
        found = set()
        for event in stream:
            if event["ns"]["coll"] == "marker" and event["documentKey"]["_id"] == last:
                return found
            if event["ns"]["coll"] in NAMES:
                found.add(event["_id"]["_data"])
    raise AssertionError("the stream has ended")


# promises 1, 2 and 4
def test_commands_side_by_side_that_are_killed_lose_nothing(
    s3: S3Server, mongo_uri: str, database: Db, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    root = f"s3://{BUCKET}/{uuid4().hex}"
    env = environment(mongo_uri, database.name) | {
        "STRANDLINE_LAKE__ROOT": root,
        "STRANDLINE_LAKE__S3_ENDPOINT": s3.endpoint,
        "STRANDLINE_LAKE__S3_REGION": REGION,
        "STRANDLINE_CAPTURE__SNAPSHOT_CHUNK_SIZE": "500",
        "STRANDLINE_CAPTURE__COLLECTION_INCLUDE_LIST": '["' + '", "'.join(f"{database.name}.{n}" for n in NAMES) + '"]',
    }
    commands, chance = Commands(env, tmp_path), random.Random(2)
    for name in NAMES:
        database[name].insert_many([{"_id": number, "n": 0} for number in range(1500)])
    newest = database.command("ping")["operationTime"]
    assert commands.run("run", "--once") == _DONE

    def change(number: int) -> None:
        table = database[chance.choice(NAMES)]
        table.update_one({"_id": chance.randrange(1500)}, {"$inc": {"n": 1}}, upsert=True)
        if number % 7 == 0:
            table.delete_one({"_id": chance.randrange(1500)})

    def service() -> None:
        commands.run("run", kill_after=chance.uniform(15, 50))

    def rebuild() -> None:
        commands.run("stop")
        kill_after = chance.uniform(4, 20) if chance.random() < 0.4 else None
        commands.run("rebuild", f"silver.{chance.choice(NAMES)}", kill_after=kill_after)
        commands.run("start")
        time.sleep(45)  # the service works for a while

    def other(*arguments: str) -> None:
        commands.run(*arguments, kill_after=chance.uniform(4, 20) if chance.random() < 0.4 else None)
        time.sleep(2)

    with repeated(change, every=0.02):
        repeat(service, rebuild, lambda: other("maintain"), lambda: other("reconcile", "--repair"))
    assert not commands.refused, "\n\n".join(commands.refused)
    assert commands.run("run", "--once") == _DONE, commands.refused
    record_property("found", f"S3, {MINUTES:g} minutes: {dict(commands.ended)}")
    # alone, each command comes to its end; reconcile does below
    for arguments in (("stop",), ("rebuild", "silver.a"), ("start",), ("maintain",)):
        assert commands.run(*arguments) == _DONE, f"{arguments}: {commands.try_again} {commands.refused}"
    tables = DeltaRsTables(Lake(root), StoreOptions(s3.endpoint, REGION))
    bronze = Query(TableName("bronze", "test")).select("position").where(("op", "in", ["c", "u", "d"]))
    positions = [row["position"] for row in tables.query(bronze)]
    assert len(positions) == len(set(positions)), "an event is in bronze twice"
    assert {position.split(":")[1] for position in positions} == tokens_after(database, newest)
    for name in NAMES:
        table = tables.folder(TableName("silver", name)).table()
        rows = pa.table(table.to_pyarrow_table(columns=["_id", "n", "_deleted"])).to_pylist()
        assert {row["_id"]: row["n"] for row in rows if not row["_deleted"]} == {
            row["_id"]: row["n"] for row in database[name].find()
        }
    assert commands.run("reconcile") == _DONE, commands.refused
