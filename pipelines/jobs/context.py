"""What every job is given: settings, a session, the lake's tables."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.errors import ConfigurationError
from pipelines.io.session import build_session
from pipelines.io.tables import Tables
from pipelines.model.tables import Lake
from pipelines.settings import Settings


@dataclass(frozen=True)
class JobContext:
    """Built once for a process by `open_context`; jobs pass plain values from it down."""

    settings: Settings
    spark: SparkSession
    tables: Tables


def open_context(settings: Settings) -> JobContext:
    """I/O: starts or joins the Spark session that *settings* name; makes the lake's folder.

    Raises:
        ConfigurationError: The folder cannot be made or written.
    """
    _writable(settings.lake_location)
    spark = build_session("strandline", master=settings.spark.master, conf=settings.spark.conf)
    return JobContext(settings=settings, spark=spark, tables=Tables(spark, settings.lake_location))


def _writable(lake: Lake) -> None:
    """Say so now, in one line, and not from the depth of the first commit."""
    if not lake.by_path or lake.in_object_store:
        return  # a catalog or an object store judges for itself
    root = Path(lake.root or "lake")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"the lake's folder {root} cannot be written ({error.strerror})", next_step="choose another lake.root"
        ) from None
