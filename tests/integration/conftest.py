"""One small demo for all tests that look at what it shows and leaves; and what tests of the command share."""

from __future__ import annotations

import fcntl
import io
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lakehouse import Demo
from pyspark.sql import SparkSession
from rich.console import Console

from strandline.jobs.demo import run_demo
from strandline.settings.configuration import Settings
from strandline.settings.silver import SilverSettings
from strandline.source.client import AnyClient, ConnectionOptions, open_client


@pytest.fixture(scope="session")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Demo:  # noqa: ARG001  # why: the demo joins the tests' session
    """The demo's lake with a history of the flights, in a folder that held an earlier lake. Made once for all."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "demo"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lake, shown = folder / "lake", folder / "shown.txt"
        if not shown.exists():
            shown.write_text(_made(lake), encoding="utf-8")
    return Demo(lake, shown.read_text(encoding="utf-8"))


def _made(lake: Path) -> str:
    shown = io.StringIO()
    (lake / "bronze" / "left_by_an_earlier_demo").mkdir(parents=True)
    silver = SilverSettings(history="scd2", history_collections=("airline.flights",))
    run_demo(Settings(silver=silver), lake=lake, rows=300, console=Console(file=shown, width=160, no_color=True))
    return shown.getvalue()


@pytest.fixture
def raw_client(mongo_uri: str) -> Iterator[AnyClient]:
    """As capture opens it: documents stay the bytes that the server sent."""
    with open_client(ConnectionOptions(mongo_uri), raw=True) as client:
        yield client


@pytest.fixture
def signals_restored() -> Iterator[None]:
    """`run` and `status --watch` take Ctrl-C for themselves."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
