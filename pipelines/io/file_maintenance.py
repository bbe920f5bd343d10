"""Small files made large ones, and files that nobody needs any more removed."""

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
class Kept:
    """How long a table keeps removed files, and how far its log goes back, in hours."""

    files: int
    log: int

    def at_most(self, log_hours: int) -> Kept:
        """The same with a log, and files, of at most so many hours."""
        return Kept(min(self.files, log_hours), min(self.log, log_hours))

    def at_least(self, hours: int) -> Kept:
        """The same with files, and a log, of at least so many hours."""
        return Kept(max(self.files, hours), max(self.log, hours))


def keep_for(tables: Tables, table: TableName, kept: Kept, known: Mapping[str, str]) -> None:
    """I/O: tells the table how long its old files are needed: whoever vacuums it obeys. One commit; none where it says so already.

    Delta removes older log files by itself, after a commit that writes a checkpoint, and whole days (UTC) at once.

    Args:
        known: The table's properties.
    """
    wanted = {_FILES: f"interval {kept.files} hours", _LOG: f"interval {kept.log} hours"}
    if not wanted.items() <= known.items():
        tables.set_properties(table, wanted)


def compact(tables: Tables, table: TableName) -> tuple[int, int] | None:
    """I/O: one commit that writes small files together (clustered, where the table is); none where there is nothing to gain.

    Returns:
        Files removed and added; None: a writer was at work on the same files, and went before.
    """
    try:
        done = tables.spark.sql(f"OPTIMIZE {tables.lake.sql(table)}")
        row = done.select("metrics.numFilesRemoved", "metrics.numFilesAdded").first()
    except LOST_RACES:
        return None
    return (int(row[0]), int(row[1])) if row is not None else (0, 0)


def vacuum(tables: Tables, table: TableName) -> None:
    """I/O: removes files that have been out of the table for longer than the table says. Its commits only tell of it."""
    tables.spark.sql(f"VACUUM {tables.lake.sql(table)}")


def committed_at(tables: Tables, table: TableName, versions: Collection[int]) -> dict[int, datetime]:
    """I/O: when *versions* were committed, UTC; without those of which the log no longer knows."""
    if not versions:
        return {}
    commits = tables.spark.sql(
        f"DESCRIBE HISTORY {tables.lake.sql(table)} LIMIT {tables.version(table) - min(versions) + 1}"
    )
    return {row["version"]: utc(row["timestamp"]) for row in commits.where(F.col("version").isin(*versions)).collect()}
