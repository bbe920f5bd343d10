"""Embedded mongod: start, change streams, elections, and no server left after its parent ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from pymongo import MongoClient
from pymongo import errors as mongo

from strandline.errors import ConfigurationError
from strandline.source.mongod import EmbeddedMongod

_PARENT = """
import sys, time
from strandline.source.mongod import EmbeddedMongod
server = EmbeddedMongod()
server.start()
print(*server.pids(), server.folder, sep="\\n", flush=True)
time.sleep(600)
"""


def running(pid: int) -> bool:
    """Return True if the process runs. A zombie has ended: only its exit code was not read yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_the_server_starts_streams_changes_and_stops() -> None:
    with EmbeddedMongod() as server:
        (pid,) = server.pids()
        folder = server.folder
        assert running(pid)
        assert folder.is_dir()
        with MongoClient[dict[str, Any]](server.uri) as client, client.shop.watch(max_await_time_ms=500) as stream:
            client.shop.orders.insert_one({"_id": 1})
            event = next(stream)
            assert (event["operationType"], event["fullDocument"]) == ("insert", {"_id": 1})
    assert not running(pid)
    assert not folder.exists()
    server.stop()  # once more: nothing to do


@pytest.mark.parametrize("members", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_kept_folder_is_a_database_again_on_other_ports(tmp_path: Path, members: int) -> None:
    for expected in (0, 1):
        with (
            EmbeddedMongod(members=members, data_dir=tmp_path) as server,
            MongoClient[dict[str, Any]](server.uri, w="majority") as client,
        ):
            assert client.shop.orders.count_documents({}) == expected
            client.shop.orders.insert_one({"_id": expected})


def test_a_stopped_server_starts_again() -> None:
    server = EmbeddedMongod()
    for _ in range(2):
        with server, MongoClient[dict[str, Any]](server.uri) as client:
            client.shop.orders.insert_one({"_id": 1})
    assert server.pids() == []


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_after_any_end_of_its_parent_no_mongod_is_left(end: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert parent.stdout is not None
        pid, folder = int(parent.stdout.readline()), Path(parent.stdout.readline().strip())
        assert running(pid)
    finally:
        parent.send_signal(end)
        parent.communicate(timeout=30)
    wait_until(lambda: not running(pid), "mongod outlived its parent")
    wait_until(lambda: not folder.exists(), "the data folder outlived its parent")


def test_a_killed_primary_is_succeeded_by_another_member() -> None:
    with (
        EmbeddedMongod(members=3) as server,
        MongoClient[dict[str, Any]](server.uri, serverSelectionTimeoutMS=500) as client,
    ):
        wait_until(lambda: len(_in_state(client, "SECONDARY")) == 2, "the set has not got two secondaries")
        client.get_database("shop", write_concern=client.write_concern).orders.insert_one({"_id": 1})
        (first,) = _in_state(client, "PRIMARY")
        pids = set(server.pids())
        server.kill(server.ports.index(first))
        (killed,) = pids - set(server.pids())
        assert not running(killed)
        wait_until(lambda: _in_state(client, "PRIMARY") not in ([], [first]), "no other primary was elected")
        client.shop.orders.insert_one({"_id": 2})
        server.restart(server.ports.index(first))
        wait_until(lambda: len(_in_state(client, "SECONDARY")) == 2, "the killed member did not come back")
    assert not any(running(pid) for pid in pids)


def _in_state(client: MongoClient[dict[str, Any]], state: str) -> list[int]:
    """Return the ports of the members in *state*; empty if no member answers."""
    try:
        members = client.admin.command("replSetGetStatus")["members"]
    except mongo.AutoReconnect:
        return []
    return [int(member["name"].rpartition(":")[2]) for member in members if member["stateStr"] == state]


def test_a_taken_port_is_told_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} is taken") as refused:
            EmbeddedMongod(port=port).start()
    assert "\n" not in str(refused.value)


def test_a_server_stands_when_pause_returns() -> None:
    with EmbeddedMongod() as server:
        for _ in range(20):  # a signal alone is too early in about every second case
            server.pause()
            try:
                threads = Path(f"/proc/{server.pids()[0]}/task").glob("*/stat")
                assert {thread.read_text().rpartition(")")[2].split()[0] for thread in threads} == {"T"}
            finally:
                server.resume()


def test_a_paused_server_goes_on_where_it_was() -> None:
    with (
        EmbeddedMongod() as server,
        MongoClient[dict[str, Any]](server.uri, socketTimeoutMS=500, retryReads=False) as client,
    ):
        client.shop.orders.insert_one({"_id": 1})
        server.pause()
        try:
            with pytest.raises(mongo.PyMongoError):
                client.shop.orders.count_documents({})
        finally:
            server.resume()
        assert client.shop.orders.count_documents({}) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"extra_args": ["--surely-not-an-option"]}, "surely-not-an-option"),
        ({"set_parameters": {"surelyNot": "1"}}, "surelyNot"),
    ],
)
def test_a_server_that_ends_at_once_has_its_last_words_in_one_line(arguments: dict[str, Any], complaint: str) -> None:
    server = EmbeddedMongod(**arguments)
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        server.start()
    assert "\n" not in str(refused.value)
    assert server.pids() == []


def test_a_folder_in_use_is_refused_and_its_user_goes_on(tmp_path: Path) -> None:
    with EmbeddedMongod(data_dir=tmp_path) as server, MongoClient[dict[str, Any]](server.uri) as client:
        with pytest.raises(ConfigurationError, match="lock"):
            EmbeddedMongod(data_dir=tmp_path).start()
        assert client.admin.command("ping")["ok"] == 1
