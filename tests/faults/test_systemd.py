"""A real capture under a service manager: a socket gets what systemd would get. No JVM."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pymongo.database import Database
from s3_server import free_port
from without_java import COMMAND, environment, source_of

Db = Database[dict[str, Any]]
_WATCHDOG_SECONDS = 3.0


class Manager:
    """The socket of a service manager, and a capture that it has started."""

    def __init__(self, folder: Path, **source: str) -> None:
        self.folder, self.port, self.said = folder, free_port(), folder / "said"
        self.heard = list[str]()
        self.receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.receiver.bind(str(folder / "notify"))
        more = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": str(int(_WATCHDOG_SECONDS * 1_000_000))}
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [str(COMMAND), "capture", "--health-port", str(self.port)],
                cwd=folder,
                env=environment(folder, **source, **more),
                stdout=said,
                stderr=said,
            )

    def lines(self, seconds: float) -> Iterator[str]:
        """Yield lines as they come. Ends after so many seconds without one."""
        while select.select([self.receiver], [], [], seconds)[0]:
            message = self.receiver.recv(4096).decode().split("\n")
            self.heard += message
            yield from message

    def await_line(self, wanted: Callable[[str], bool]) -> None:
        """Wait for the next line that is wanted."""
        deadline = time.monotonic() + 60
        for line in self.lines(30):
            if wanted(line):
                return
            assert time.monotonic() < deadline, "\n".join(self.heard)
        raise AssertionError((self.heard, self.said.read_text()))

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code


@contextmanager
def managed(folder: Path, uri: str, database: Db) -> Iterator[Manager]:
    manager = Manager(folder, **source_of(uri, database))
    try:
        yield manager
    finally:
        manager.process.kill()
        manager.process.wait()
        manager.receiver.close()


# scenario: R08
def test_systemd_hears_of_start_progress_and_end(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    database.a.insert_one({"_id": 1})
    with managed(tmp_path, mongo_uri, database) as manager:
        manager.await_line("READY=1".__eq__)
        assert manager.get("/readyz") == 200, "READY=1 came before the stream was open"
        manager.await_line("WATCHDOG=1".__eq__)
        began = time.monotonic()
        manager.await_line("WATCHDOG=1".__eq__)
        assert time.monotonic() - began < _WATCHDOG_SECONDS, "systemd would have ended the process"
        is_status = re.compile("STATUS=capturing, [0-9]+ s behind the source").fullmatch
        if not any(map(is_status, manager.heard)):  # sent when it changes: perhaps with READY=1
            manager.await_line(lambda line: is_status(line) is not None)
        manager.process.send_signal(signal.SIGTERM)
        manager.await_line("STOPPING=1".__eq__)
        assert manager.process.wait(timeout=60) == 0, manager.said.read_text()


def test_a_loop_that_hangs_sends_nothing_although_the_process_lives(
    mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """The next commit of bronze is a named pipe. Who reads it waits until somebody writes."""
    database.a.insert_one({"_id": 1})
    with managed(tmp_path, mongo_uri, database) as manager:
        manager.await_line("READY=1".__eq__)
        manager.await_line("WATCHDOG=1".__eq__)
        log = tmp_path / "lake" / "bronze" / "test" / "_delta_log"
        newest = max(int(file.stem) for file in log.glob("*.json"))
        os.mkfifo(log / f"{newest + 1:020}.json")
        database.a.insert_one({"_id": 2})
        deadline = time.monotonic() + 30
        for line in manager.lines(2 * _WATCHDOG_SECONDS):
            assert time.monotonic() < deadline, f"the loop does not hang: {line}"
        assert manager.process.poll() is None, manager.said.read_text()
        assert manager.get("/livez") == 200, "other threads answer; it becomes 503 after ten minutes"
