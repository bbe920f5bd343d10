"""File maintenance: retention, compaction, vacuum."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from deltalake import PostCommitHookProperties
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.disk import files_since
from strandline.io.delta_log.plain_protocol import make_plain
from strandline.io.delta_log.sorted_rewrite import sort_files
from strandline.io.delta_log.table_folder import LOG
from strandline.io.delta_log.table_upkeep import NO_HOOKS
from strandline.io.spark.conflicts import LOST_RACES
from strandline.io.spark.races import retrying
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_store import TableStore
from strandline.model.tables import Lake, TableName
from strandline.model.timestamps import utc

_OF_THE_CATALOG = "DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION"
FILES_KEPT, LOG_KEPT = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"


class MaintainedByCatalog(Exception):
    """Error for OPTIMIZE or VACUUM of a table whose catalog compacts and removes files itself. Nothing was changed."""


@dataclass(frozen=True)
class FileRetention:
    """Retention of removed files and of the log, in hours."""

    files: int
    log: int

    def at_most(self, log_hours: int) -> FileRetention:
        """Return the retention with an upper bound of *log_hours* for files and log."""
        return FileRetention(min(self.files, log_hours), min(self.log, log_hours))

    def at_least(self, hours: int) -> FileRetention:
        """Return the retention with a lower bound of *hours* for files and log."""
        return FileRetention(max(self.files, hours), max(self.log, hours))


class TableFiles(Protocol):
    """Data files of one table."""

    @property
    def tables(self) -> TableStore:
        """Tables of the lake, by the way in which this table is written."""

    def count(self) -> int:
        """I/O: number of data files."""

    def compact(self) -> tuple[int, int] | None:
        """I/O: compacts files. No commit if there is nothing to compact.

        Returns:
            Numbers of files removed and added. None: a concurrent writer won the conflict, and nothing was compacted.

        Raises:
            MaintainedByCatalog: Only the catalog may do this.
        """

    def vacuum(self) -> None:
        """I/O: removes files that left the table before its file retention. VACUUM adds two commits to the log.

        Raises:
            MaintainedByCatalog: Only the catalog may do this.
        """


@dataclass(frozen=True)
class SparkFiles:
    """Files of a table that Spark writes. Spark compacts small files, clustered if the table is.

    delta-rs counts files and removes old ones where it can: a VACUUM by Spark is eleven jobs, 3 seconds with 10 files.

    Args:
        direct: The lake's tables, if delta-rs can write this table.
    """

    tables: Tables
    table: TableName
    direct: DeltaRsTables | None = None

    def count(self) -> int:
        if self.direct is not None:
            return _count(self.direct, self.table)
        return int(self.tables.detail(self.table)["numFiles"])

    def compact(self) -> tuple[int, int] | None:
        try:
            row = self._run("OPTIMIZE").select("metrics.numFilesRemoved", "metrics.numFilesAdded").first()
        except LOST_RACES:
            return None
        return (int(row[0]), int(row[1])) if row is not None else (0, 0)

    def vacuum(self) -> None:
        if self.direct is None:
            self._run("VACUUM")
            return
        _vacuum(self.direct, self.table)

    def _run(self, command: str) -> DataFrame:
        try:
            return self.tables.spark.sql(f"{command} {self.tables.lake.sql(self.table)}")
        except UnsupportedOperationException as error:
            if error.getCondition() != _OF_THE_CATALOG:
                raise
            raise MaintainedByCatalog from error


@dataclass(frozen=True)
class DeltaRsFiles:
    """Files of bronze where delta-rs writes it. Its rows are sorted by collection, without Spark."""

    tables: DeltaRsTables
    table: TableName

    def count(self) -> int:
        return _count(self.tables, self.table)

    def compact(self) -> tuple[int, int] | None:
        with table_errors(self.table):
            folder = self.tables.folder(self.table)
            make_plain(folder)
            return sort_files(folder)

    def vacuum(self) -> None:
        _vacuum(self.tables, self.table, NO_HOOKS)


def _count(tables: DeltaRsTables, table: TableName) -> int:
    with table_errors(table):
        return tables.folder(table).table().get_add_actions().num_rows


def _vacuum(tables: DeltaRsTables, table: TableName, hooks: PostCommitHookProperties | None = None) -> None:
    """Remove files by delta-rs, then checksum files that it leaves.

    Args:
        hooks: What follows the commits. None: checkpoints and log clean-up, if due.
    """
    with table_errors(table):
        folder = tables.folder(table)
        folder.table().vacuum(dry_run=False, full=True, post_commithook_properties=hooks)
        folder.remove_checksums(LogFolder(folder).checkpoint())


def set_retention(tables: TableStore, table: TableName, retention: FileRetention) -> None:
    """I/O: stores the retention in the table's properties, which VACUUM obeys. No commit if it is stored already.

    Delta removes older log files by itself, in whole UTC days, after a commit that writes a checkpoint.
    """
    target = {FILES_KEPT: f"interval {retention.files} hours", LOG_KEPT: f"interval {retention.log} hours"}
    if not target.items() <= tables.properties(table).items():
        retrying()(tables.set_properties, table, target)


def committed_at(tables: Tables, table: TableName, versions: Collection[int]) -> dict[int, datetime]:
    """I/O: commit times of *versions*, UTC. Versions that the log no longer holds are left out."""
    if not versions:
        return {}
    commits = tables.spark.sql(
        f"DESCRIBE HISTORY {tables.lake.sql(table)} LIMIT {tables.version(table) - min(versions) + 1}"
    )
    return {row["version"]: utc(row["timestamp"]) for row in commits.where(F.col("version").isin(*versions)).collect()}


def log_files_of_a_day(lake: Lake, table: TableName) -> int:
    """I/O: number of log files that *table* got in the last 24 hours. 0: this process does not see the log."""
    is_seen = lake.by_path and not lake.in_object_store
    return files_since(Path(lake.path(table), LOG), 24 * 3600) if is_seen else 0
