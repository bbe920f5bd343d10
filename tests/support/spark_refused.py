"""A lake that is opened without Spark. What would start Spark fails."""

from __future__ import annotations

from typing import NoReturn

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import LazyContext, open_silver_without_spark
from strandline.settings.configuration import Settings


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
