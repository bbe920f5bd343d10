"""The position that bronze remembers: the row that ends the highest batch of the newest lineage. There is no other offset store."""

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
    """None after a reset: the next capture starts anew."""
    snapshot_id: str | None
    """The snapshot that was still running then."""
    lineage: int = 1
    last_event: str | None = None
    """Cluster time in hex of the last event before the token; None: none is known."""


@dataclass(frozen=True)
class Ended:
    """The end of one batch, as it stands in bronze."""

    batch: int
    lineage: int
    at: datetime
    """When it was captured, UTC."""
    kind: str
    """``events``, ``heartbeat``, ``gap``, or what was done to the offset: ``alter``, ``reset``, ``restored``."""
    resume_token: str | None
    note: str | None
    """What a control row says, as JSON."""
    writer: str


def ends() -> Column:
    """Whether a bronze row ends a batch."""
    return F.col("resume_token").isNotNull() | (F.col("op") == "offset")


def lineage_of_row() -> Column:
    """The lineage of a bronze row that ends a batch."""
    return F.coalesce("lineage", F.lit(1))


def committed(tables: Tables, bronze: TableName, *, version: int | None = None) -> Committed | None:
    """I/O: reads the statistics of *bronze*'s files, and those files that hold the newest batch; None before the first batch.

    Neither old versions nor the change feed are read: Delta shows both for a limited time. The newest batch is nearly always one of the
    newest lineage. It is not where a RESTORE left a larger one of an older lineage: then all ends of the newest lineage are read.

    Args:
        version: As of that version of the table; default: the newest.

    Raises:
        VersionGone: Delta no longer shows *version*.
    """
    rows = tables.read(bronze, version=version)
    newest = rows.agg(
        F.max("batch").alias("batch"), F.max("lineage").alias("lineage")
    ).first()  # of statistics alone: no file is opened
    if newest is None or newest["batch"] is None:
        return None
    lineage, last = newest["lineage"] or 1, None
    for among in (F.col("batch") == newest["batch"], F.col("lineage") == lineage, F.lit(True)):
        last = _committed(_newest_first(rows.where(ends() & among))).first()
        if last is not None and last["lineage"] == lineage:
            break
    return None if last is None else Committed(*last)


def newest_times(tables: Tables, bronze: TableName, last: Committed) -> tuple[datetime | None, datetime | None]:
    """I/O: when the newest streamed event happened (cluster time), and when the newest batch was captured; both UTC. Looks at the newest
    batches first: only where nothing has happened for long are older ones read."""
    rows = tables.read(bronze).where(F.col("batch").isNotNull())
    for batches in (*_RECENT_BATCHES, last.batch):
        (newest,) = (
            rows.where(F.col("batch") > last.batch - batches).agg(F.max("cluster_time"), F.max("captured_at")).collect()
        )
        if newest[0] is not None:
            break
    return utc(newest[0]), utc(newest[1])


def history(tables: Tables, bronze: TableName, limit: int) -> list[Ended]:
    """I/O: the ends of the newest *limit* batches, newest first."""
    return [_ended(row) for row in newest_ends(tables, bronze, limit)]


def newest_ends(tables: Tables, bronze: TableName, limit: int) -> list[Row]:
    """I/O: the rows that end the newest *limit* batches, newest first."""
    return _newest_first(tables.read(bronze).where(ends())).limit(limit).collect()


def last_token(tables: Tables, bronze: TableName) -> str | None:
    """I/O: the token up to which bronze was streamed last, though a reset forgot it; None: it never was. Reads all ends."""
    row = _newest_first(tables.read(bronze).where(F.col("resume_token").isNotNull())).select("resume_token").first()
    return None if row is None else str(row[0])


def last_before_hole(tables: Tables, bronze: TableName) -> Committed | None:
    """I/O: where bronze is whole up to, after a RESTORE under a running capture may have torn a hole into its batches; None: from its first
    batch on it is not. Reads all ends."""
    rows = _committed(tables.read(bronze).where(ends())).orderBy("batch", "lineage")
    return whole_through(Committed(*row) for row in rows.toLocalIterator())


def whole_through(found: Iterable[Committed]) -> Committed | None:
    """The last of the ends without a hole before it. Pure.

    Args:
        found: By batch, then by lineage. What a lineage committed behind the hole, before it was fenced, stands beside the batches of the
            next one.
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
    """The fields of `Committed`, in their order."""
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
