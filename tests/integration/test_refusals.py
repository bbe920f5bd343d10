"""Bad input gets one line and an exit code; nothing is lost, and no secret is shown."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import ConfigurationError, RetriableError, StrandlineError
from pipelines.jobs.capture import connection_options
from pipelines.jobs.context import open_context
from pipelines.settings import Settings
from pipelines.source.client import ConnectionOptions, inspect, open_client
from pipelines.source.mongod import free_ports, mongod_binary

CANARY = "s3cret-canary"


def refusal(uri: str) -> StrandlineError:
    options = ConnectionOptions(uri, server_selection_timeout_ms=1500)
    with pytest.raises(StrandlineError) as caught, open_client(options) as client:
        inspect(client)
    error = caught.value
    assert "\n" not in str(error)
    assert CANARY not in str(error) + repr(error) + repr(error.__cause__) + repr(options)
    return error


# scenario: U02, F07
def test_nobody_answers() -> None:
    error = refusal(f"mongodb://user:{CANARY}@127.0.0.1:{free_ports(1)[0]}/")
    assert isinstance(error, RetriableError)
    assert "does not answer" in str(error)


# scenario: U10
@pytest.mark.parametrize("uri", [f"postgres://user:{CANARY}@host/", "mongodb://", f"mongodb://u:{CANARY}@h:notaport/"])
def test_an_address_that_cannot_be_read_is_not_quoted(uri: str) -> None:
    assert isinstance(refusal(uri), ConfigurationError)


# scenario: U02
def test_wrong_credentials(mongo_uri: str) -> None:
    error = refusal(mongo_uri.replace("mongodb://", f"mongodb://nobody:{CANARY}@"))
    assert isinstance(error, ConfigurationError)
    assert "18" in str(error)


def test_a_standalone_server(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [str(mongod_binary()), "--dbpath", str(tmp_path), "--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        options = ConnectionOptions(f"mongodb://127.0.0.1:{port}/", server_selection_timeout_ms=20_000)
        with pytest.raises(ConfigurationError, match="replSet"), open_client(options) as client:
            inspect(client)
    finally:
        server.kill()
        server.wait()


def settings(**lake: Any) -> Settings:
    return Settings(lake=lake)  # type: ignore[arg-type]  # why: pydantic builds the section


def test_a_lake_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        open_context(settings(root=str(tmp_path / "file" / "lake")))


def test_no_source_is_configured() -> None:
    with pytest.raises(ConfigurationError, match="no MongoDB is configured"):
        connection_options(settings())
