"""Contexts of jobs that need no Spark: settings, tables of the lake, and the engine that writes bronze."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from strandline.bronze.fenced_table import OpenEngine
from strandline.bronze.native_engine import NativeEngine
from strandline.io.delta_log.lake_folder import has_hard_links, require_writable
from strandline.io.delta_log.object_store import (
    BRIEF_SECONDS,
    StoreOptions,
    is_known_store,
    require_bucket,
    require_conditional_create,
)
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.format_check import refuse_other_lake
from strandline.io.tables.table_store import TableStore, own_tables
from strandline.io.telemetry.log_once import log_once
from strandline.model.engines import DELTA_RS
from strandline.model.table_schemas import CONTROL_TABLES, bronze_table
from strandline.model.tables import Lake
from strandline.settings.configuration import Settings
from strandline.settings.selection import Engine

if TYPE_CHECKING:
    from strandline.jobs.context import JobContext

_SPARK_ENVIRONMENT: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE")
"""Environment variables of a Spark whose files may name another file system than this machine's."""
_log = logging.getLogger("strandline.capture")
_OTHER_COMMITS: Final = ("AWS_S3_LOCKING_PROVIDER", "AWS_COPY_IF_NOT_EXISTS")
"""Variables with which delta-rs commits in another way than by conditional PUT."""
_STORE_SETTINGS: Final = (
    "endpoint",
    "access.key",
    "secret.key",
    "session.token",
    "credentials",
    "assumed.role",
    "logStore",
)
"""Words in keys of ``spark.conf`` that say where a store is, who opens it, or how Spark commits to it."""


class LakeContext(Protocol):
    """Settings and tables of one process. `JobContext` has a Spark session, too."""

    @property
    def settings(self) -> Settings: ...

    @property
    def tables(self) -> TableStore: ...

    def for_capture(self, *, patient: bool = True) -> CaptureContext:
        """Return the context in which capture, and every other writer of bronze, works.

        Args:
            patient: Ask a store that does not answer again for five minutes. False: for some seconds, because the
                caller itself tries again.

        Raises:
            ConfigurationError: The engine of capture cannot write this lake.
        """


class PipelineContext(Protocol):
    """Settings and tables of a process that transforms rows, and a Spark session if it needs one."""

    @property
    def settings(self) -> Settings: ...

    @property
    def tables(self) -> TableStore: ...

    def with_spark(self) -> JobContext:
        """Return the context with a Spark session. I/O: the first call may start Spark. Threads may share it."""


@dataclass(frozen=True)
class LazyContext:
    """Context of a lake in a folder of this machine or in S3. It starts Spark when a part of the work needs it."""

    settings: Settings
    tables: DeltaRsTables
    with_spark: Callable[[], JobContext]


@dataclass(frozen=True)
class CaptureContext:
    """Settings, tables, and the engine that appends to bronze.

    Args:
        engine: Name of the engine, as results show it.
    """

    settings: Settings
    tables: TableStore
    open_engine: OpenEngine
    engine: str

    def for_capture(self, *, patient: bool = True) -> CaptureContext:  # noqa: ARG002  # why: the port's
        return self


@dataclass(frozen=True)
class DeltaRsContext:
    """Context of a lake in a folder of this machine or in S3, without Spark."""

    settings: Settings
    tables: DeltaRsTables

    def for_capture(self, *, patient: bool = True) -> CaptureContext:
        options = self.tables.options if patient else replace(self.tables.options, patience_seconds=BRIEF_SECONDS)
        tables = replace(self.tables, options=options)
        # one worker per lane and one for the stream, which needs it if JSON columns are stored
        workers = self.settings.capture.snapshot_max_threads + 1
        return CaptureContext(self.settings, tables, partial(NativeEngine.open, tables, workers=workers), DELTA_RS)


def open_without_spark(settings: Settings) -> DeltaRsContext | None:
    """Open the lake without Spark.

    None: it is in another place than a folder of this machine or S3, or delta-rs lacks a feature of a
    table.

    I/O: reads the protocols of bronze and the control tables.

    Raises:
        ConfigurationError: A newer release or a preview has written the lake, or as `require_bucket`.
        RetriableError: The store does not answer.
    """
    bronze = bronze_table(settings.source.name)
    if (tables := tables_here(settings)) is None:
        return None
    if tables.lake.in_object_store:
        require_bucket(tables.lake.root or "", tables.options)
    if not tables.can_use(bronze, CONTROL_TABLES):
        return None
    refuse_other_lake(tables, bronze)
    return DeltaRsContext(settings, tables)


def open_silver_without_spark(settings: Settings) -> DeltaRsContext | None:
    """Open the lake without Spark, for a command that counts rows of silver tables.

    None: a silver table is native, so that only Spark reads it; or as `open_without_spark`, whose errors it raises.

    I/O: reads the protocols of bronze, the control tables and the silver tables.
    """
    lake = open_without_spark(settings)
    if lake is None or not all(map(lake.tables.can_query, own_tables(lake.tables, "silver"))):
        return None
    return lake


def open_capture_without_spark(settings: Settings) -> DeltaRsContext | None:
    """Open the lake for a writer of bronze, without Spark.

    None: the engine of capture is ``spark``, or ``auto`` and Spark is a cluster; the folder has no hard links; or
    as `open_without_spark`.

    I/O: as `open_without_spark`; writes a file into the lake's folder or store, and removes it.

    Raises:
        ConfigurationError: The folder or the store cannot be written, the store has no conditional create, or as
            `open_without_spark`.
        RetriableError: The store does not answer.
    """
    if settings.capture_engine == "spark":
        return None
    if settings.capture_engine == "auto" and not _is_local(settings):
        return _spark_writes(settings, "spark.master is a cluster, or null")
    lake = open_without_spark(settings)
    if lake is None:
        return _spark_writes(
            settings, "delta-rs cannot open the lake's place as Spark does, or lacks a feature of a table"
        )
    tables = lake.tables
    if tables.lake.in_object_store:
        require_conditional_create(tables.lake.root or "", tables.options)
    else:
        root = Path(tables.lake.root or "")
        require_writable(root)
        if not has_hard_links(root):
            return _spark_writes(settings, "the folder's file system has no hard links")
    return lake


def _spark_writes(settings: Settings, reason: str) -> DeltaRsContext | None:
    bronze = settings.lake_location.sql(bronze_table(settings.source.name))
    log_once(_log.name, "Spark writes %s: %s", bronze, reason)
    return None


def tables_to_merge(settings: Settings, engine: Engine) -> DeltaRsTables | None:
    """Return the tables through which delta-rs merges into silver or gold. None: Spark merges every row.

    Spark does if *engine* says so, on a cluster, and where `tables_here` returns None, whose I/O this has.
    """
    return tables_here(settings) if engine == "auto" and _is_local(settings) else None


def tables_here(settings: Settings) -> DeltaRsTables | None:
    """Return the tables where delta-rs reaches the lake as Spark does. None: it is elsewhere, or has no hard links.

    I/O: in a folder that exists, links a file and removes it.
    """
    if (store := store_here(settings)) is not None:
        return DeltaRsTables(store, store_options(settings))
    folder = folder_here(settings)
    return DeltaRsTables(folder, store_options(settings)) if folder is not None and _has_links(folder) else None


def control_tables_here(settings: Settings) -> DeltaRsTables | None:
    """Return the tables where a session of Spark leaves rows of control to delta-rs. None: Spark writes them.

    Spark takes up to a second for a row. I/O: as `tables_here`.
    """
    return None if folder_here(settings) is None else tables_here(settings)


def _has_links(lake: Lake) -> bool:
    """Return True if delta-rs can commit in the folder. A folder that is missing or cannot be written is not judged."""
    root = Path(lake.root or "")
    try:
        return not root.is_dir() or has_hard_links(root)
    except OSError:
        return True


def store_options(settings: Settings) -> StoreOptions:
    """Return how the lake's store is opened."""
    return StoreOptions(settings.lake.s3_endpoint, settings.lake.s3_region)


def store_here(settings: Settings) -> Lake | None:
    """Return the lake in S3 that delta-rs opens as Spark does. None: it is elsewhere, or Spark differs.

    Spark differs if this process does not start it, if ``spark.conf`` names a server, credentials or a log store, or if
    the environment has delta-rs commit in another way.
    """
    lake = settings.lake_location
    is_store = lake.by_path and is_known_store(lake.root or "")
    is_started_here = settings.spark.master is not None
    differs = any(word in key for key in settings.spark.conf for word in _STORE_SETTINGS)
    differs |= any(name in os.environ for name in _OTHER_COMMITS)
    return lake if is_store and is_started_here and not differs else None


def folder_here(settings: Settings) -> Lake | None:
    """Return the lake as a folder of this machine. None: it is in a catalog or in another file system.

    I/O: reads environment variables. A folder counts only if Spark sees the same one: with a local master, and no
    setting of another file system.
    """
    lake, spark = settings.lake_location, settings.spark
    root = (lake.root or "lake").removeprefix("file://") if lake.by_path else ""
    elsewhere = any("fs.default" in key for key in spark.conf) or any(name in os.environ for name in _SPARK_ENVIRONMENT)
    local_lake = replace(lake, root=root)
    is_here = lake.by_path and not local_lake.in_object_store and _is_local(settings)
    return None if elsewhere or not is_here else replace(lake, root=str(Path(root).absolute()))


def _is_local(settings: Settings) -> bool:
    return (settings.spark.master or "").startswith("local")
