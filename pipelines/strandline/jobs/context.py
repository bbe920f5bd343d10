"""The context of every job: settings, Spark session and tables of the lake."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from strandline.bronze.spark_engine import SparkEngine
from strandline.errors import ConfigurationError
from strandline.io.delta_log.lake_folder import require_writable
from strandline.io.delta_log.object_store import StoreOptions, is_known_store
from strandline.io.spark.delta_jars import require_delta
from strandline.io.spark.session import build_session, is_local
from strandline.io.tables.filesystem_check import as_spark_sees_it
from strandline.io.tables.format_check import refuse_other_lake
from strandline.io.tables.log_store_check import refuse_unfenced
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.lake_context import (
    CaptureContext,
    control_tables_here,
    open_capture_without_spark,
    store_here,
    store_options,
)
from strandline.model.engines import SPARK
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import Lake
from strandline.settings.configuration import Settings


@dataclass(frozen=True)
class JobContext:
    """Settings, session and tables of one process, from `open_context`. Jobs pass plain values on to the layers."""

    settings: Settings
    spark: SparkSession
    tables: Tables

    def with_spark(self) -> JobContext:
        return self

    def for_capture(self, *, patient: bool = True) -> CaptureContext:
        """Return the context in which capture, and every other writer of bronze, works.

        Raises:
            ConfigurationError: ``capture.engine`` is ``native``, and delta-rs cannot write this lake.
        """
        if (folder := open_capture_without_spark(self.settings)) is not None:
            return folder.for_capture(patient=patient)
        if self.settings.capture_engine == "native":
            raise ConfigurationError(
                "the native engine writes into a folder of this machine that has hard links, or into S3, and"
                f" {self.tables.lake.root or 'the lake'} is neither, or has tables that delta-rs cannot write",
                next_step="set capture.engine: auto",
            )
        reads_here = self.settings.capture.snapshot_reader == "driver"
        opening = partial(SparkEngine.open, self.tables, reads_here=reads_here)
        return CaptureContext(self.settings, self.tables, opening, SPARK)


def open_context(settings: Settings, *, java_options: str = "") -> JobContext:
    """Open the context of a process.

    I/O, raises: as `start_spark` and `open_lake`.

    Args:
        java_options: Options of a JVM that this call starts.
    """
    return open_lake(start_spark(settings, java_options=java_options), settings)


def start_spark(settings: Settings, *, java_options: str = "") -> SparkSession:
    """Start a Spark session, or return the running one.

    I/O: as `build_session`; creates the lake's folder if Spark runs on this machine.

    Args:
        java_options: Options of a JVM that this call starts.

    Raises:
        ConfigurationError: The folder cannot be created or written, or as `require_delta` and `build_session`.
    """
    require_delta(settings.spark.master, settings.spark.conf)
    if is_local(settings.spark.master):
        _require_writable(settings.lake_location)
    return build_session(
        "strandline",
        master=settings.spark.master,
        conf=settings.spark.conf,
        java_options=java_options,
        s3=_s3(settings),
    )


def open_lake(spark: SparkSession, settings: Settings) -> JobContext:
    """Open the lake in a session.

    I/O: as `as_spark_sees_it` and `refuse_unfenced`; reads the properties of two tables.

    Raises:
        ConfigurationError: As `refuse_other_lake`, `as_spark_sees_it` and `refuse_unfenced`.
    """
    lake = as_spark_sees_it(spark, settings.lake_location)
    refuse_unfenced(spark, lake)
    tables = tables_of(spark, lake, settings)
    refuse_other_lake(tables, bronze_table(settings.source.name))
    return JobContext(settings=settings, spark=spark, tables=tables)


def tables_of(spark: SparkSession, lake: Lake, settings: Settings) -> Tables:
    """Return the tables of *lake*. This process reads their logs itself where it reaches them as Spark does.

    I/O: as `control_tables_here`.
    """
    store = None if store_here(settings) is None else store_options(settings)
    return Tables(spark, lake, store=store, control=control_tables_here(settings))


def _s3(settings: Settings) -> StoreOptions | None:
    """Return how the session reaches S3. None: the lake is elsewhere, and no setting of S3 is set."""
    options, lake = store_options(settings), settings.lake_location
    return options if options != StoreOptions() or (lake.by_path and is_known_store(lake.root or "")) else None


def _require_writable(lake: Lake) -> None:
    """Raise ConfigurationError if the lake's folder cannot be written: before a JVM starts."""
    if not lake.by_path or lake.in_object_store:
        return  # a catalog or an object store checks its own permissions
    require_writable(Path(lake.root or "lake"))
