"""One server of each version, started when the first test asks for it. All tests here have the mark `versions`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from mongod_versions import VERSIONS, Seen, Server, mongod
from pymongo import MongoClient


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "versions" in item.path.parts:
            item.add_marker(pytest.mark.versions)


@pytest.fixture(scope="session")
def seen(request: pytest.FixtureRequest) -> Iterator[Seen]:
    """The record of this run. It is written if no test failed and every feature was seen on every version."""
    record = Seen()
    yield record
    if record.is_complete and request.session.testsfailed == 0:
        record.write()


@pytest.fixture(scope="session", params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with ExitStack() as running:
        embedded = running.enter_context(mongod(request.param, set_parameters={"enableTestCommands": "1"}))
        client = running.enter_context(MongoClient(embedded.uri, uuidRepresentation="standard"))
        yield Server(request.param, embedded.uri, client)


@pytest.fixture(scope="session")
def mongo(server: Server) -> MongoClient[dict[str, object]]:
    """Replaces the server of the other tests: the fixture `database` is on each version in turn."""
    return server.client
