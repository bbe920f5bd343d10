"""Invalid input ends with one line and an exit code. No data is lost and no secret is shown."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError, RetriableError, StrandlineError
from strandline.jobs.context import open_context
from strandline.jobs.offset_target import configured_start
from strandline.jobs.source_connection import connection_options
from strandline.settings.configuration import Settings
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.deployment import inspect_deployment
from strandline.source.mongod import free_ports, mongod_binary
from strandline.source.oplog import Oplog
from strandline.source.stages import Selection

CANARY = "s3cret-canary"


def refusal(uri: str) -> StrandlineError:
    options = ConnectionOptions(uri, server_selection_timeout_ms=1500)
    with pytest.raises(StrandlineError) as caught, open_client(options) as client:
        inspect_deployment(client)
    error = caught.value
    assert "\n" not in str(error)
    assert CANARY not in str(error) + repr(error) + repr(error.__cause__) + repr(options)
    return error


@contextmanager
def asked(uri: str) -> Iterator[Oplog]:
    with open_client(ConnectionOptions(uri), raw=True) as client:
        yield Oplog(client, Selection(), expanded_events=False)


# scenario: U02, F07
def test_an_unreachable_source_is_one_line() -> None:
    error = refusal(f"mongodb://user:{CANARY}@127.0.0.1:{free_ports(1)[0]}/")
    assert isinstance(error, RetriableError)
    assert "does not answer" in str(error)


# scenario: U10
@pytest.mark.parametrize("uri", [f"postgres://user:{CANARY}@host/", "mongodb://", f"mongodb://u:{CANARY}@h:notaport/"])
def test_an_address_that_cannot_be_read_is_not_quoted(uri: str) -> None:
    assert isinstance(refusal(uri), ConfigurationError)


# scenario: U02
def test_wrong_credentials_are_refused_with_one_line(mongo_uri: str) -> None:
    error = refusal(mongo_uri.replace("mongodb://", f"mongodb://nobody:{CANARY}@"))
    assert isinstance(error, ConfigurationError)
    assert "18" in str(error)


def test_a_standalone_server_is_refused_with_one_line(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [
        str(mongod_binary()),
        "--dbpath",
        str(tmp_path),
        "--port",
        str(port),
        "--bind_ip",
        "127.0.0.1",
        "--nounixsocket",
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        options = ConnectionOptions(f"mongodb://127.0.0.1:{port}/", server_selection_timeout_ms=20_000)
        with pytest.raises(ConfigurationError, match="replSet"), open_client(options) as client:
            inspect_deployment(client)
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


@pytest.mark.parametrize(
    ("start_at", "why"),
    [
        ("tomorrow", "no ISO 8601 time"),
        ("1969-12-31T23:59:59+00:00", "no ISO 8601 time since 1970"),
        ("1970-01-01T00:00:00+00:00", "no ISO 8601 time since 1970"),
        ("0001-01-01T00:00:00", "no ISO 8601 time since 1970"),
        ("2099-01-01T00:00:00+00:00", "lies in the source's future"),
        ("2107-01-01T00:00:00+00:00", "lies in the source's future"),
        ("9999-12-31T23:59:59-14:00", "lies in the source's future"),
    ],
)
def test_a_start_that_the_source_never_had(mongo_uri: str, start_at: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refused, asked(mongo_uri) as oplog:
        configured_start(start_at, oplog)
    assert "capture.start_at" in refused.value.message
    assert refused.value.next_step


def test_a_start_that_the_source_had_or_may_have_slept_through(mongo_uri: str) -> None:
    with asked(mongo_uri) as oplog:
        seconds, _ = oplog.present_time()
        assert configured_start(datetime.fromtimestamp(seconds, UTC).isoformat(), oplog) == (seconds, 0)
        assert configured_start("2013-06-01", oplog) is not None
        now = int(time.time())
        assert configured_start(datetime.fromtimestamp(now, UTC).isoformat(), oplog) in (None, (now, 0)), (
            "it may have written since"
        )
        assert configured_start(None, oplog) is None


def test_a_missing_uri_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no MongoDB is configured"):
        connection_options(settings())
