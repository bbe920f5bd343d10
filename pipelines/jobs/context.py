"""What every job is given: settings, a session, the lake's tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.errors import ConfigurationError
from pipelines.io.filesystem_check import as_spark_sees_it, require_writable, unwritable
from pipelines.io.migration import refuse_newer_lake
from pipelines.io.session import build_session, is_local
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import bronze_table
from pipelines.model.tables import Lake
from pipelines.settings.configuration import Settings

_S3 = ("s3", "s3a", "s3n")


@dataclass(frozen=True)
class JobContext:
    """Built once for a process by `open_context`; jobs pass plain values from it down."""

    settings: Settings
    spark: SparkSession
    tables: Tables


def open_context(settings: Settings, *, java_options: str = "") -> JobContext:
    """I/O: starts or joins the Spark session that *settings* name; makes the lake's folder.

    Args:
        settings: Of the pipeline.
        java_options: For a JVM that is started here.

    Raises:
        ConfigurationError: The folder cannot be made or written, two writers could overwrite each other there, or a newer
            release has written the lake.
    """
    if is_local(settings.spark.master):
        _require_writable(settings.lake_location)
    spark = build_session(
        "strandline", master=settings.spark.master, conf=settings.spark.conf, java_options=java_options
    )
    lake = as_spark_sees_it(spark, settings.lake_location)
    refuse_unfenced(lake, lambda key: spark.conf.get(key, None))
    tables = Tables(spark, lake)
    refuse_newer_lake(tables, bronze_table(settings.source.name))
    return JobContext(settings=settings, spark=spark, tables=tables)


def refuse_unfenced(lake: Lake, conf: Callable[[str], str | None]) -> None:
    """S3 in itself has no commit that only one of two can make: Delta's store for it counts on one driver, and so both would win.

    Args:
        conf: A setting of the session; None where there is none.

    Raises:
        ConfigurationError: The lake is a path on S3, and nobody has chosen a log store that keeps drivers apart.
    """
    scheme = (lake.root or "").partition(":")[0]
    if (
        not lake.by_path
        or scheme not in _S3
        or conf(f"spark.delta.logStore.{scheme}.impl")
        or conf("spark.databricks.cloudProvider")
    ):
        return
    raise ConfigurationError(
        f"{lake.root} is a path on S3, where two drivers can overwrite each other's commits without a word",
        next_step=f"set spark.delta.logStore.{scheme}.impl: io.delta.storage.S3DynamoDBLogStore in spark.conf, or set lake.catalog",
    )


def _require_writable(lake: Lake) -> None:
    """Before a JVM is started for nothing."""
    if not lake.by_path or lake.in_object_store:
        return  # a catalog or an object store judges for itself
    root = Path(lake.root or "lake")
    try:
        require_writable(root)
    except OSError as error:
        raise unwritable(str(root), error) from None
