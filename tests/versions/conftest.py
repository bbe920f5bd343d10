"""One server of each version, or the user's own (``MONGODB_URI``). All tests here have the mark `versions`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from mongod_versions import VERSIONS, Seen, Server, mongod
from pymongo import MongoClient

from strandline.source.mongod import configured_uri

_RECORD: Final = Seen()


@pytest.fixture(scope="session")
def seen(request: pytest.FixtureRequest) -> Iterator[Seen]:
    """Outcomes of this run. They are written if no test failed."""
    yield _RECORD
    if configured_uri() is None and request.session.testsfailed == 0:
        _RECORD.write(whole=not request.config.option.keyword)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show what was seen on a server of the user's. It is not written."""
    for line in _RECORD.lines() if configured_uri() is not None else ():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", params=VERSIONS if configured_uri() is None else ["MONGODB_URI"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with ExitStack() as running:
        if (own := configured_uri()) is not None:
            client = running.enter_context(MongoClient(own, uuidRepresentation="standard"))
            yield Server(client.server_info()["version"], own, client)
            return
        embedded = running.enter_context(mongod(request.param, set_parameters={"enableTestCommands": "1"}))
        client = running.enter_context(MongoClient(embedded.uri, uuidRepresentation="standard"))
        yield Server(request.param, embedded.uri, client)


@pytest.fixture(scope="session")
def mongo(server: Server) -> MongoClient[dict[str, object]]:
    """Replaces the server of the other tests: the fixture `database` is on each version in turn."""
    return server.client
