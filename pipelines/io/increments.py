"""What became of a table between two of its versions, read from Delta's change data feed; and what is left when the feed has ended.

Delta forgets: the log of a version goes after ``delta.logRetentionDuration`` (30 days), and VACUUM takes files that no version needs.
"""

from __future__ import annotations

import logging

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import ContractError
from pipelines.io.tables import Tables
from pipelines.model.tables import TableName

_log = logging.getLogger("strandline.tables")


class FeedLost(ContractError):
    """The changes of a range of versions cannot be read any more. Whoever followed them must look at the whole table."""


def feed(tables: Tables, table: TableName, first: int, last: int) -> DataFrame:
    """The change data feed of versions *first* to *last*, both inclusive: rows before and after, with ``_change_type``.

    Raises:
        FeedLost: The table's log no longer goes back to *first*. A file that VACUUM took shows itself later, when the rows are read.
    """
    reader = tables.spark.read.format("delta").option("readChangeFeed", "true")
    reader = reader.option("startingVersion", first).option("endingVersion", last)
    try:
        rows = reader.load(tables.lake.path(table)) if tables.lake.by_path else reader.table(tables.lake.sql(table))
        _ = rows.schema  # a remote session has not looked at the table yet
    except Exception as error:  # of whatever class: Delta's errors about the feed have none in common, so the log is asked
        if _reaches_back_to(tables, table, first):
            raise
        raise FeedLost(
            f"the log of {table} no longer goes back to version {first}", next_step="read the whole table; what it holds is complete"
        ) from error
    return rows


def require_readable(rows: DataFrame) -> None:
    """I/O: reads all files that *rows*, of a `feed`, come from: one that VACUUM took shows itself here and not later.

    Raises:
        FeedLost: A file cannot be read.
    """
    try:
        rows.distinct().count()  # `isEmpty` would read one row of one file, also of what is distinct
    except Exception as error:  # of whatever class: pyspark has none for what fails in an executor
        raise FeedLost("a file of the changes cannot be read", next_step="read the whole table; what it holds is complete") from error


def inserted(tables: Tables, table: TableName, first: int, last: int) -> DataFrame:
    """Rows that versions *first* to *last*, both inclusive, brought to a table that is only appended to, with ``_commit_version``.

    From the very first version on, and where the log no longer goes back to *first*: all rows of version *last*, as if it had brought
    them. More than was asked for, never less, so only for readers to whom a row that comes again is no news.
    """
    if first > 0:
        try:
            rows = feed(tables, table, first, last)
            return rows.where(F.col("_change_type") == "insert").drop("_change_type", "_commit_timestamp")
        except FeedLost as lost:
            _log.warning("%s; all of its rows are read instead", lost.message)
    return tables.read(table, version=last).withColumn("_commit_version", F.lit(last).cast("BIGINT"))


def _reaches_back_to(tables: Tables, table: TableName, version: int) -> bool:
    """Whether the log still says what *table* was at *version*."""
    try:
        _ = tables.read(table, version=version).schema
    except AnalysisException as error:
        if error.getCondition() != "DELTA_VERSION_NOT_FOUND":
            raise
        return version >= int((error.getMessageParameters() or {})["earliest"])
    return True
