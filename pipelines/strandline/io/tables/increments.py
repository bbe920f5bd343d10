"""Changes of a table between two versions, from Delta's change data feed or from a full scan.

The feed is lost in three cases: the first version is older than ``delta.deletedFileRetentionDuration`` (7 days), its
log is older than ``delta.logRetentionDuration`` (30 days), or VACUUM has removed one of its files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.errors import ContractError, one_line
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_store import VersionGone
from strandline.model.tables import TableName

_log = logging.getLogger("strandline.tables")


class FeedLost(ContractError):
    """The change feed of a version range is no longer readable. Read the whole table instead."""


def feed(tables: Tables, table: TableName, first: int, last: int) -> DataFrame:
    """Return the change data feed of versions *first* to *last*, both inclusive, with ``_change_type``.

    Raises:
        FeedLost: Delta refuses the feed. A file that VACUUM removed is detected later, by `require_readable`.
    """
    reader = tables.spark.read.format("delta").option("readChangeFeed", "true")
    reader = reader.option("startingVersion", first).option("endingVersion", last)
    try:
        rows = reader.load(tables.lake.path(table)) if tables.lake.by_path else reader.table(tables.lake.sql(table))
        _ = rows.schema  # a remote session analyses the query only now
    except Exception as error:  # Delta's errors about the feed have no common class
        raise _lost(_changes(table, first), error) from error
    return rows


def require_readable(rows: DataFrame, what: str) -> None:
    """I/O: opens every data file of *rows*, but reads no column. So a file that VACUUM removed is detected here.

    Args:
        what: The rows in words, in the plural, for the error.

    Raises:
        FeedLost: A file cannot be read.
    """
    with _reading(what):
        rows.select(
            F.spark_partition_id()
        ).distinct().count()  # `count` alone needs only Delta's log, `isEmpty` only one file


def read_few(rows: DataFrame, most: int, what: str) -> pa.Table | None:
    """I/O: reads *rows* if there are at most *most* of them. None: there are more, and not every file was opened.

    Raises:
        FeedLost: As `require_readable`.
    """
    with _reading(what):
        table = rows.limit(most + 1).toArrow()
    return table if table.num_rows <= most else None


def rows_appended(tables: Tables, table: TableName, first: int, last: int) -> DataFrame:
    """Return the rows that versions *first* to *last* appended, both inclusive, with ``_commit_version``.

    I/O: as `require_readable`. The table must be append-only.

    If *first* is 0 or the change feed no longer reaches back to *first*, return every row of version *last*. Callers
    must tolerate repeated rows.

    Raises:
        VersionGone: The feed is lost, and *last* is neither the newest version nor young enough for time travel.
    """
    if first > 0:
        try:
            rows = feed(tables, table, first, last).where(F.col("_change_type") == "insert")
            require_readable(rows, _changes(table, first))
            return rows.drop("_change_type", "_commit_timestamp")
        except FeedLost as lost:
            _log.warning("%s; all rows of the table are read instead", lost.message)
    return tables.read(table, version=last).withColumn("_commit_version", F.lit(last).cast("BIGINT"))


def is_readable(tables: Tables, table: TableName, version: int) -> bool:
    """I/O: returns True if all rows of *version* can be read. Opens every file, unless *version* is the newest."""
    if version == tables.version(table):
        return True
    try:
        require_readable(tables.read(table, version=version), f"rows of {table}")
    except (FeedLost, VersionGone):
        return False
    return True


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise FeedLost in place of an error of Spark."""
    try:
        yield
    except Exception as error:  # pyspark has no class for failures of an executor
        raise _lost(what, error) from error


def _changes(table: TableName, first: int) -> str:
    return f"the changes of {table} from version {first} on"


def _lost(what: str, error: Exception) -> FeedLost:
    return FeedLost(
        f"{what} cannot be read ({one_line(error)})", next_step="read the whole table; its rows are complete"
    )
