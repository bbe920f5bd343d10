"""One small demo for all tests that look at what it shows and leaves."""

from __future__ import annotations

import io

import pytest
from lakehouse import Demo
from pyspark.sql import SparkSession
from rich.console import Console

from pipelines.jobs.demo import run_demo
from pipelines.settings import Settings


@pytest.fixture(scope="session")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Demo:  # noqa: ARG001  # why: the demo joins the tests' session
    """In a folder in which an earlier one had been."""
    lake, shown = tmp_path_factory.mktemp("demo") / "lake", io.StringIO()
    (lake / "bronze" / "left_by_an_earlier_demo").mkdir(parents=True)
    run_demo(Settings(), lake=lake, rows=300, console=Console(file=shown, width=160, no_color=True))
    return Demo(lake, shown.getvalue())
