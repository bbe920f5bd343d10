"""Changes of a table between two of its versions, read from Delta's change data feed, and all rows of the table where the feed has ended.

The feed ends where Delta no longer shows the first version (``delta.deletedFileRetentionDuration``, 7 days), where its log is gone
(``delta.logRetentionDuration``, 30 days), and where VACUUM has removed a file of it.
"""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import ContractError, one_line
from pipelines.io.tables import Tables
from pipelines.io.versions import VersionGone
from pipelines.model.tables import TableName

_log = logging.getLogger("strandline.tables")


class FeedLost(ContractError):
    """The changes of a range of versions cannot be read any more. The reader must read the whole table."""


def feed(tables: Tables, table: TableName, first: int, last: int) -> DataFrame:
    """The change data feed of versions *first* to *last*, both inclusive: rows before and after, with ``_change_type``.

    Raises:
        FeedLost: Delta does not show the feed. A file that VACUUM removed is noticed later, when the rows are read: `require_readable`.
    """
    reader = tables.spark.read.format("delta").option("readChangeFeed", "true")
    reader = reader.option("startingVersion", first).option("endingVersion", last)
    try:
        rows = reader.load(tables.lake.path(table)) if tables.lake.by_path else reader.table(tables.lake.sql(table))
        _ = rows.schema  # a remote session has not looked at the table yet
    except Exception as error:  # of whatever class: Delta's errors about the feed have none in common
        raise _lost(_changes(table, first), error) from error
    return rows


def require_readable(rows: DataFrame, what: str) -> None:
    """I/O: opens every data file of *rows* and reads no column for it: a file that VACUUM removed is noticed here and not later.

    Args:
        what: Names the rows, in the plural.

    Raises:
        FeedLost: A file cannot be read.
    """
    try:
        rows.select(
            F.spark_partition_id()
        ).distinct().count()  # a plain count is answered from Delta's log, `isEmpty` from one file
    except Exception as error:  # of whatever class: pyspark has none for what fails in an executor
        raise _lost(what, error) from error


def inserted(tables: Tables, table: TableName, first: int, last: int) -> DataFrame:
    """Rows that versions *first* to *last*, both inclusive, brought to a table that is only appended to, with ``_commit_version``.

    I/O: as `require_readable`.

    From the very first version on, and where the feed is lost: all rows of version *last*, as if it had brought them. More than was asked
    for, never less, so only for readers to whom a row that comes again is no news.

    Raises:
        VersionGone: The feed is lost, *last* is old, and somebody has committed since it was the newest.
    """
    if first > 0:
        try:
            rows = feed(tables, table, first, last).where(F.col("_change_type") == "insert")
            require_readable(rows, _changes(table, first))
            return rows.drop("_change_type", "_commit_timestamp")
        except FeedLost as lost:
            _log.warning("%s; all of its rows are read instead", lost.message)
    return tables.read(table, version=last).withColumn("_commit_version", F.lit(last).cast("BIGINT"))


def is_readable(tables: Tables, table: TableName, version: int) -> bool:
    """I/O: whether all rows of *version* can be read. Of one that is not the newest this opens every file."""
    if version == tables.version(table):
        return True
    try:
        require_readable(tables.read(table, version=version), f"rows of {table}")
    except (FeedLost, VersionGone):
        return False
    return True


def _changes(table: TableName, first: int) -> str:
    return f"the changes of {table} from version {first} on"


def _lost(what: str, error: Exception) -> FeedLost:
    return FeedLost(
        f"{what} cannot be read ({one_line(error)})", next_step="read the whole table; what it holds is complete"
    )
