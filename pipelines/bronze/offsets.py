"""The committed position: the row that ends the highest batch of the newest lineage. The only offset store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipelines.io.tables import Tables
from pipelines.model.tables import TableName
from pipelines.model.timestamps import utc

_RECENT_BATCHES = (1_000, 100_000)


@dataclass(frozen=True)
class Committed:
    """The end of the last committed batch."""

    batch: int
    resume_token: str | None
    """None after a reset: the next capture starts at now."""
    snapshot_id: str | None
    """Snapshot that was still running. None: no snapshot ran."""
    lineage: int = 1
    last_event: str | None = None
    """Cluster time of the last event before the token, in hex. None: unknown."""


@dataclass(frozen=True)
class Ended:
    """The end of one batch in bronze."""

    batch: int
    lineage: int
    at: datetime
    """Capture time, UTC."""
    kind: str
    """``events``, ``heartbeat``, ``gap``, or a change of the offset: ``alter``, ``reset``, ``restored``."""
    resume_token: str | None
    note: str | None
    """Details of a control row, as JSON. None: no control row."""
    writer: str


def ends() -> Column:
    """Return the condition that a bronze row ends a batch."""
    return F.col("resume_token").isNotNull() | (F.col("op") == "offset")


def lineage_of_row() -> Column:
    """Return the lineage of a bronze row that ends a batch."""
    return F.coalesce("lineage", F.lit(1))


def committed(tables: Tables, bronze: TableName, *, version: int | None = None) -> Committed | None:
    """I/O: reads file statistics of *bronze*, and the files of the newest batch. None before the first batch.

    Old versions and the change feed are not read, because Delta shows both for a limited time only. The newest batch
    nearly always belongs to the newest lineage. After a RESTORE an older lineage may have a larger batch. Then all ends
    of the newest lineage are read.

    Args:
        version: Version of the table to read. Default: the newest.

    Raises:
        VersionGone: Delta no longer shows *version*.
    """
    rows = tables.read(bronze, version=version)
    # Delta answers this from statistics, without opening a file.
    newest = rows.agg(F.max("batch").alias("batch"), F.max("lineage").alias("lineage")).first()
    if newest is None or newest["batch"] is None:
        return None
    lineage, last = newest["lineage"] or 1, None
    for among in (F.col("batch") == newest["batch"], F.col("lineage") == lineage, F.lit(True)):
        last = _committed(_newest_first(rows.where(ends() & among))).first()
        if last is not None and last["lineage"] == lineage:
            break
    return None if last is None else Committed(*last)


def newest_times(tables: Tables, bronze: TableName, last: Committed) -> tuple[datetime | None, datetime | None]:
    """I/O: cluster time of the newest streamed event, and capture time of the newest batch, both UTC.

    Reads the newest batches first. Reads older ones only if the newest hold no event.
    """
    rows = tables.read(bronze).where(F.col("batch").isNotNull())
    for batches in (*_RECENT_BATCHES, last.batch):
        (newest,) = (
            rows.where(F.col("batch") > last.batch - batches).agg(F.max("cluster_time"), F.max("captured_at")).collect()
        )
        if newest[0] is not None:
            break
    return utc(newest[0]), utc(newest[1])


def history(tables: Tables, bronze: TableName, limit: int) -> list[Ended]:
    """I/O: ends of the newest *limit* batches, newest first."""
    return [_ended(row) for row in newest_ends(tables, bronze, limit)]


def newest_ends(tables: Tables, bronze: TableName, limit: int) -> list[Row]:
    """I/O: rows that end the newest *limit* batches, newest first."""
    return _newest_first(tables.read(bronze).where(ends())).limit(limit).collect()


def last_token(tables: Tables, bronze: TableName) -> str | None:
    """I/O: last streamed resume token, also after a reset. None: nothing was streamed. Reads all ends."""
    row = _newest_first(tables.read(bronze).where(F.col("resume_token").isNotNull())).select("resume_token").first()
    return None if row is None else str(row[0])


def last_before_hole(tables: Tables, bronze: TableName) -> Committed | None:
    """I/O: last batch before a hole, which a RESTORE under a running capture may have left. None: no first batch.

    Reads all ends.
    """
    rows = _committed(tables.read(bronze).where(ends())).orderBy("batch", "lineage")
    return whole_through(Committed(*row) for row in rows.toLocalIterator())


def whole_through(found: Iterable[Committed]) -> Committed | None:
    """Return the last end without a hole before it. Pure.

    Args:
        found: Ends, sorted by batch, then by lineage. A lineage may have committed batches after the hole before it was
            fenced. They have the same numbers as batches of the next lineage.
    """
    last: Committed | None = None
    for end in found:
        if last is not None and end.lineage < last.lineage:
            continue
        if end.batch > (last.batch if last is not None else 0) + 1:
            break
        last = end
    return last


def _committed(rows: DataFrame) -> DataFrame:
    """Return the fields of `Committed` in their order."""
    return rows.select("batch", "resume_token", "snapshot_id", lineage_of_row().alias("lineage"), "last_event")


def _newest_first(rows: DataFrame) -> DataFrame:
    return rows.orderBy(lineage_of_row().desc(), F.col("batch").desc())


def _ended(row: Row) -> Ended:
    control = row["op"] in ("heartbeat", "offset", "gap")
    kind = (row["operation_type"] if row["op"] == "offset" else row["op"]) if control else "events"
    at = utc(row["captured_at"])
    return Ended(
        row["batch"],
        row["lineage"] or 1,
        at,
        kind,
        row["resume_token"],
        row["after"] if control else None,
        row["writer"],
    )
