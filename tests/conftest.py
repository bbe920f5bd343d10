"""Shared fixtures: one Spark session and one mongod per test process, a new lake and a new database per test."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pymongo import MongoClient
    from pymongo.database import Database
    from pyspark.sql import SparkSession

    from strandline.io.tables.spark_tables import Tables
    from strandline.model.tables import Lake

# A busy machine is no defect: an example may take its time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("patient"), max_examples=20)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        from hatch_build import build_if_changed

        build_if_changed()
        from lake_place import PlaceServers

        config.pluginmanager.register(PlaceServers())
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        from shared_jvm import SharedJvm

        config.pluginmanager.register(SharedJvm())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder: ``make check`` runs unit tests, and ``make test`` leaves some folders out."""
    for item in items:
        if "unit" in item.path.parts and not item.get_closest_marker("slow"):
            item.add_marker("check")
        for folder in ("places", "versions"):
            if folder in item.path.parts:
                item.add_marker(folder)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests ``record_property("found", …)`` is shown, from whichever process."""
    for report in (
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
    ):
        for line in (line for name, line in report.user_properties if name == "found" and report.when == "call"):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The one session of the process."""
    from shared_jvm import start_session, worker_session

    in_shared_jvm = worker_session(request.config)
    session = in_shared_jvm or start_session()
    yield session
    if in_shared_jvm is None:
        session.stop()


@pytest.fixture(autouse=True)
def _log_of_one_test() -> Iterator[None]:
    """The command line sends the log of its process to its own standard error, and says more than other callers."""
    root, ours = logging.getLogger(), logging.getLogger("strandline")
    handlers, levels = set(root.handlers), (root.level, ours.level)
    yield
    for handler in set(root.handlers) - handlers:
        root.removeHandler(handler)
    for logger, level in zip((root, ours), levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    from strandline.model.tables import Lake

    return Lake(root=str(tmp_path / "lake"))


@pytest.fixture
def tables(spark: SparkSession, lake: Lake) -> Tables:
    from strandline.io.tables.spark_tables import Tables

    return Tables(spark, lake)


@pytest.fixture(scope="session")
def mongo_uri() -> Iterator[str]:
    """A real replica set: ``MONGODB_URI``, or the embedded mongod with test commands enabled (failpoints)."""
    from strandline.source.mongod import EmbeddedMongod, configured_uri

    configured = configured_uri()
    if configured:
        yield configured
        return
    with EmbeddedMongod(set_parameters={"enableTestCommands": "1"}) as server:
        yield server.uri


@pytest.fixture(scope="session")
def mongo(mongo_uri: str) -> Iterator[MongoClient[dict[str, Any]]]:
    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](mongo_uri, uuidRepresentation="standard") as client:
        yield client


@pytest.fixture
def database(mongo: MongoClient[dict[str, Any]]) -> Iterator[Database[dict[str, Any]]]:
    """An empty database of a name that no other test has; dropped afterwards."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    yield mongo[name]
    mongo.drop_database(name)
