"""docs/start.md on a MongoDB with passwords: the commands of the page are run, and its user captures."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import ROOT, Page
from guarded_server import guarded_server, uri_of
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from strandline.cli import app
from strandline.model.snapshot_policy import ChunkSize
from strandline.source.chunk_plan import plan_chunks
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.listing import captured_collections
from strandline.source.mongod import EmbeddedMongod
from strandline.source.oplog import Oplog
from strandline.source.stages import Selection

PAGE = Page(ROOT / "docs" / "start.md")
_COMMAND = re.compile(r'db\.getSiblingDB\("(\w+)"\)\.runCommand\((\{.+\})\)')
_OF_THE_SHELL_ALONE = {"rs.printReplicationInfo()"}

Client = MongoClient[dict[str, Any]]


def shell_commands() -> list[tuple[str, dict[str, Any]]]:
    """Return database and command document of each mongosh command on the page, with shell functions replaced."""
    lines = [line for block in PAGE.blocks("js") for line in block.splitlines() if line not in _OF_THE_SHELL_ALONE]
    found = [re.fullmatch(_COMMAND, line) for line in lines]
    assert found
    assert None not in found, lines
    known = [
        (match[1], re.sub(r"Double\((\d+)\)", r"\1.0", match[2]).replace("passwordPrompt()", "password"))
        for match in found
        if match
    ]
    return [(database, yaml.safe_load(document)) for database, document in known]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Client, EmbeddedMongod]]:
    """A server with users, and a client of its administrator."""
    with guarded_server(tmp_path, "root") as (server, administrator):
        yield administrator, server


# scenario: U04
@pytest.mark.usefixtures("spark", "signals_restored")
def test_the_page_is_followed_step_by_step_by_a_user_who_can_do_nothing_else(
    guarded: tuple[Client, EmbeddedMongod],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    administrator, server = guarded
    administrator.shop.orders.insert_many([{"_id": number, "total": number * 1.5} for number in range(20)])
    administrator.secrets.salaries.insert_one({"_id": 1})
    for database, command in shell_commands():
        administrator[database].command(command)

    monkeypatch.chdir(tmp_path)
    uri = uri_of(server, "strandline", "password")
    monkeypatch.setenv("STRANDLINE_SOURCE__URI", uri)
    monkeypatch.setenv("STRANDLINE_CAPTURE__GUARDRAIL_COLLECTIONS_MAX", "5")
    units = [command for command in PAGE.commands() if command[0] == "--log-format"]
    steps = [command for command in PAGE.commands() if command not in units]
    names = ["init", "doctor", "run", "status", "snapshot", "sql", "sql", "sql", "init", "doctor"]
    assert [command[0] for command in steps] == names
    assert [command[-1] for command in units] == ["run", "maintain"]
    for command in (*steps, units[-1]):
        assert app(command, standalone_mode=False) in (None, 0), command
        if command == steps[0]:
            monkeypatch.chdir(tmp_path / "shop")
    shown = capsys.readouterr().out
    watched_until_interrupted(capsys)
    for expected in (
        "1 collections",
        "at most 5 collections",
        "headroom seconds",
        "shop.orders",
        "silver.orders",
        "DOUBLE",
    ):
        assert expected in shown, shown

    with closing(open_client(ConnectionOptions(uri))) as client:
        with pytest.raises(OperationFailure, match="not authorized"):
            client.shop.orders.insert_one({"_id": "written"})
        with pytest.raises(OperationFailure, match="not authorized"):
            client.secrets.salaries.find_one()


def watched_until_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)

    def interrupt() -> None:
        while signal.getsignal(signal.SIGINT) is before:
            time.sleep(0.1)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

    somebody = threading.Thread(target=interrupt)
    somebody.start()
    assert app(["status", "--watch", "--every", "0.1", "--json"], standalone_mode=False) in (None, 0)
    somebody.join()
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {look["silver"][0]["table"] for look in looks} == {"silver.orders"}


def test_the_three_actions_that_the_page_names_are_enough(guarded: tuple[Client, EmbeddedMongod]) -> None:
    administrator, server = guarded
    administrator.shop.orders.insert_one({"_id": 1})
    actions = ["find", "changeStream", "listCollections"]
    assert set(actions) <= set(PAGE.inline_code)
    privileges = [{"resource": {"db": "shop", "collection": ""}, "actions": actions}]
    administrator.admin.command({"createRole": "reads_shop", "privileges": privileges, "roles": []})
    administrator.admin.command({"createUser": "narrow", "pwd": "narrow", "roles": ["reads_shop"]})
    options, selection = ConnectionOptions(uri_of(server, "narrow", "narrow")), Selection.of("database", "shop")
    with closing(open_client(options)) as client, closing(open_client(options, raw=True)) as raw:
        (orders,) = captured_collections(client, selection)
        assert len(plan_chunks(raw, orders, ChunkSize(10))) == 1
        oplog = Oplog(raw, selection, expanded_events=True)
        assert oplog.window(oplog.token_at()).age_seconds is not None
