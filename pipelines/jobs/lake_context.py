"""Contexts of jobs that need no Spark: settings, tables of the lake, and the engine that writes bronze."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from pipelines.bronze.native_engine import NativeEngine
from pipelines.bronze.opened_table import OpenEngine
from pipelines.io.delta_rs_tables import DeltaRsTables
from pipelines.io.format_check import has_present_format, refuse_newer_lake
from pipelines.io.lake_folder import has_hard_links, require_writable
from pipelines.io.table_store import TableStore
from pipelines.model.table_schemas import CONTROL_TABLES, bronze_table
from pipelines.model.tables import Lake
from pipelines.settings.configuration import Settings

_SPARK_ENVIRONMENT: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE")
"""Environment variables of a Spark whose files may name another file system than this machine's."""


class LakeContext(Protocol):
    """Settings and tables of one process. `JobContext` has a Spark session, too."""

    @property
    def settings(self) -> Settings: ...

    @property
    def tables(self) -> TableStore: ...

    def for_capture(self) -> CaptureContext:
        """Return the context in which capture, and every other writer of bronze, works.

        Raises:
            ConfigurationError: ``capture.engine`` cannot write this lake.
        """


@dataclass(frozen=True)
class CaptureContext:
    """Settings, tables, and the engine that appends to bronze."""

    settings: Settings
    tables: TableStore
    open_engine: OpenEngine

    def for_capture(self) -> CaptureContext:
        return self


@dataclass(frozen=True)
class FolderContext:
    """Context of a lake in a folder of this machine, without Spark."""

    settings: Settings
    tables: DeltaRsTables

    def for_capture(self) -> CaptureContext:
        # one worker per lane and one for the stream, which needs it if JSON columns are stored
        workers = self.settings.capture.snapshot_max_threads + 1
        return CaptureContext(self.settings, self.tables, partial(NativeEngine.open, workers=workers))


def open_without_spark(settings: Settings) -> FolderContext | None:
    """Open the lake without Spark.

    None: it is not in a folder of this machine, or delta-rs lacks a feature of a table.

    I/O: reads the protocols of bronze and the control tables.

    Raises:
        ConfigurationError: A newer release has written the lake.
    """
    folder, bronze = folder_here(settings), bronze_table(settings.source.name)
    if folder is None or not (tables := DeltaRsTables(folder)).can_use(bronze, CONTROL_TABLES):
        return None
    refuse_newer_lake(tables, bronze)
    return FolderContext(settings, tables)


def open_capture_without_spark(settings: Settings) -> FolderContext | None:
    """Open the lake for a writer of bronze, without Spark.

    None: ``capture.engine`` is ``spark``, the folder has no hard links, the lake has the format of an older release, or
    as `open_without_spark`.

    I/O: as `open_without_spark`; writes a file into the lake's folder, and removes it.

    Raises:
        ConfigurationError: The folder cannot be written, or as `open_without_spark`.
    """
    opened = open_without_spark(settings) if settings.capture.engine != "spark" else None
    if opened is None:
        return None
    root = Path(opened.tables.lake.root or "")
    require_writable(root)
    is_usable = has_hard_links(root) and has_present_format(opened.tables, bronze_table(settings.source.name))
    return opened if is_usable else None


def folder_here(settings: Settings) -> Lake | None:
    """Return the lake as a folder of this machine. None: it is in a catalog or in another file system.

    I/O: reads environment variables. A folder counts only if Spark sees the same one: with a local master, and no
    setting of another file system.
    """
    lake, spark = settings.lake_location, settings.spark
    root = (lake.root or "lake").removeprefix("file://") if lake.by_path else ""
    elsewhere = any("fs.default" in key for key in spark.conf) or any(name in os.environ for name in _SPARK_ENVIRONMENT)
    here = replace(lake, root=root)
    is_here = lake.by_path and not here.in_object_store and (spark.master or "").startswith("local")
    return None if elsewhere or not is_here else replace(lake, root=str(Path(root).absolute()))
