"""A lake that is opened without Spark. What would start Spark fails."""

from __future__ import annotations

from typing import NoReturn

import pytest
from lake_place import PLACE
from lakehouse import COMPATIBILITY

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import LazyContext, open_silver_without_spark
from strandline.settings.configuration import Settings

WITHOUT_SPARK = [
    pytest.mark.skipif(PLACE == "hdfs", reason="delta-rs does not reach HDFS"),
    pytest.mark.skipif(COMPATIBILITY == "native", reason="only Spark reads and writes native tables"),
]
"""Marks of tests in which this process alone reads and writes the lake."""


class SparkIsNeeded(Exception):
    """Spark would have been started."""


def refuse_spark() -> NoReturn:
    raise SparkIsNeeded


def lake_without_spark(settings: Settings) -> LazyContext:
    """Return the context of the lake, which refuses Spark."""
    opened = open_silver_without_spark(settings)
    assert opened is not None
    return LazyContext(settings, opened.tables, refuse_spark)


def capture_without_spark(ctx: LazyContext) -> None:
    """Capture once."""
    opened = open_silver_without_spark(ctx.settings)
    assert opened is not None
    run_capture(opened.for_capture(), once=True)
