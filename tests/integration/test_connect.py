"""Some tests of other modules, run again through Spark Connect: no JVM in the process, no plugin in the server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from connect_server import ROOT, connect_server

from strandline.errors import ConfigurationError, RetriableError
from strandline.io.spark.session import await_server
from strandline.source.mongod import free_ports

_SMALLEST = (
    "tests/integration/test_pipeline.py::test_a_snapshot_and_a_change_are_captured_once_and_a_third_run_commits_no_row"
)
_WIDER = (
    "tests/spark",
    "tests/property/test_convergence.py",
    "tests/integration/test_pipeline.py",
    "tests/integration/test_quality_gate.py",
    "tests/integration/test_namespace_events.py",
    "tests/integration/test_folding.py",
    "tests/integration/test_offsets.py",
    "tests/integration/test_rebuild.py",
    "tests/integration/test_reconcile.py",
    "tests/integration/test_scd2.py",
)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server."""
    with connect_server(tmp_path_factory.mktemp("connect") / "server.log") as address:
        yield address


def run_tests(remote: str, *tests: str, which: str = "not long") -> None:
    """In a process of their own: a process that has a session of one kind never gets one of the other."""
    env = os.environ | {"SPARK_REMOTE": remote, "JAVA_HOME": "/there/is/no/JVM"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", which, *tests]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]


@pytest.mark.places
def test_the_whole_way_goes_through_spark_connect(remote: str) -> None:
    """Snapshot, stream, MERGE, tombstones and inferred columns."""
    run_tests(remote, _SMALLEST)


@pytest.mark.long
def test_much_of_the_suite_goes_through_spark_connect(tmp_path: Path) -> None:
    with connect_server(tmp_path / "server.log", for_long=True) as remote:
        run_tests(remote, *_WIDER)


_NO_MONGODB = """
import socket, sys
connect = socket.socket.connect
def refusing(self, address):
    if sys._getframe(1).f_globals["__name__"].startswith("pymongo"):
        raise OSError("the workers have no way to MongoDB")
    return connect(self, address)
socket.socket.connect = refusing
"""
"""A `sitecustomize` module. Python runs it when a worker starts."""


@pytest.mark.long
def test_the_driver_reads_a_snapshot_where_workers_cannot_reach_mongodb(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_NO_MONGODB, encoding="utf-8")
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'pipelines'}"}
    with connect_server(tmp_path / "server.log", environment=environment) as remote:
        run_tests(remote, "tests/integration/test_snapshot_modes.py::test_the_driver_reads_a_snapshot")


@pytest.mark.long
def test_the_data_source_streams_through_spark_connect(tmp_path: Path) -> None:
    """With the package on the server: its driver reads the change stream."""
    file = "tests/integration/test_spark_source.py"
    names = (
        "test_a_batch_query_reads_every_document_once_at_one_time_in_several_chunks",
        "test_a_stream_commits_a_batch_once_that_spark_repeats_after_a_crash",
        "test_capture_continues_a_stream_and_its_stale_checkpoint_is_refused",
        "test_a_checkpoint_ahead_of_a_restored_bronze_is_refused_and_a_new_one_continues",
        "test_a_stream_from_a_lost_token_ends_with_one_line",
    )
    with connect_server(
        tmp_path / "server.log", for_long=True, environment={"PYTHONPATH": str(ROOT / "pipelines")}
    ) as remote:
        run_tests(remote, *(f"{file}::{name}" for name in names), which="long")


# scenario: U10
def test_a_server_that_does_not_answer_or_an_address_that_is_none_is_one_line() -> None:
    (port,) = free_ports(1)
    with pytest.raises(RetriableError, match=rf"no Spark Connect server answers at 127\.0\.0\.1:{port} → start it"):
        await_server(f"sc://127.0.0.1:{port}/;token=s3cret", seconds=0.5)
    with pytest.raises(ConfigurationError) as caught:
        await_server("sc://host:notaport/;token=s3cret")
    assert "s3cret" not in str(caught.value)


def test_a_client_that_is_not_complete_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise ImportError('grpc')", encoding="utf-8")
    env = os.environ | {"SPARK_REMOTE": "sc://127.0.0.1:1", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'pipelines'}"}
    env["STRANDLINE_LAKE__ROOT"] = str(tmp_path / "lake")
    command = [sys.executable, "-m", "strandline.cli", "status"]
    both = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert both.returncode == 2
    assert "STRANDLINE_SPARK__MASTER=null" in both.stderr.splitlines()[-1]
    alone = subprocess.run(
        command, env=env | {"STRANDLINE_SPARK__MASTER": "null"}, capture_output=True, text=True, check=False
    )
    assert alone.returncode == 2
    assert alone.stderr.splitlines()[-1].endswith(f"→ pip install -e '{ROOT}[connect]'"), alone.stderr
