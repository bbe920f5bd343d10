"""File maintenance: retention, compaction, vacuum."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import functions as F

from pipelines.io.conflicts import LOST_RACES
from pipelines.io.tables import Tables
from pipelines.model.tables import TableName
from pipelines.model.timestamps import utc

_FILES, _LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"


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


def set_retention(tables: Tables, table: TableName, retention: FileRetention, known: Mapping[str, str]) -> None:
    """I/O: stores the retention in the table's properties, which VACUUM obeys. No commit if it is stored already.

    Delta removes older log files by itself, in whole UTC days, after a commit that writes a checkpoint.

    Args:
        known: Present properties of the table.
    """
    wanted = {_FILES: f"interval {retention.files} hours", _LOG: f"interval {retention.log} hours"}
    if not wanted.items() <= known.items():
        tables.set_properties(table, wanted)


def compact(tables: Tables, table: TableName) -> tuple[int, int] | None:
    """I/O: one commit that compacts small files, clustered if the table is. No commit if there is nothing to compact.

    Returns:
        Numbers of files removed and added. None: a concurrent writer won the conflict, and nothing was compacted.
    """
    try:
        done = tables.spark.sql(f"OPTIMIZE {tables.lake.sql(table)}")
        row = done.select("metrics.numFilesRemoved", "metrics.numFilesAdded").first()
    except LOST_RACES:
        return None
    return (int(row[0]), int(row[1])) if row is not None else (0, 0)


def vacuum(tables: Tables, table: TableName) -> None:
    """I/O: removes files that left the table before its file retention. VACUUM adds two commits to the log."""
    tables.spark.sql(f"VACUUM {tables.lake.sql(table)}")


def committed_at(tables: Tables, table: TableName, versions: Collection[int]) -> dict[int, datetime]:
    """I/O: commit times of *versions*, UTC. Versions that the log no longer holds are left out."""
    if not versions:
        return {}
    commits = tables.spark.sql(
        f"DESCRIBE HISTORY {tables.lake.sql(table)} LIMIT {tables.version(table) - min(versions) + 1}"
    )
    return {row["version"]: utc(row["timestamp"]) for row in commits.where(F.col("version").isin(*versions)).collect()}
