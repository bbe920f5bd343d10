"""What every job is given: settings, a session, the lake's tables."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from pipelines.io.session import build_session
from pipelines.io.tables import Tables
from pipelines.settings import Settings


@dataclass(frozen=True)
class JobContext:
    """Built once for a process by `open_context`; jobs pass plain values from it down."""

    settings: Settings
    spark: SparkSession
    tables: Tables


def open_context(settings: Settings) -> JobContext:
    """I/O: starts or joins the Spark session that *settings* name."""
    spark = build_session("strandline", master=settings.spark.master, conf=settings.spark.conf)
    return JobContext(settings=settings, spark=spark, tables=Tables(spark, settings.lake_location))
