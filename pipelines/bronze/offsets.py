"""The position that bronze remembers: the row that ends the highest batch of the newest lineage. There is no other offset store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipelines.io.tables import Tables
from pipelines.model.tables import TableName

PROOF_PREFIX: Final = "strandline:"
"""What the ``userMetadata`` of every commit of a bronze writer begins with."""

_FIRST_WINDOW = 8


@dataclass(frozen=True)
class Committed:
    """The end of the last committed batch."""

    batch: int
    resume_token: str | None
    """None after a reset: the next capture starts anew."""
    snapshot_id: str | None
    """The snapshot that was still running then."""
    lineage: int = 1


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


def _lineage() -> Column:
    return F.coalesce("lineage", F.lit(1))


def committed(tables: Tables, bronze: TableName, *, version: int | None = None) -> Committed | None:
    """I/O: reads the newest commits of *bronze*, whatever its size; None before the first batch.

    The last few commits bound a file-pruned look at the table itself, which alone decides: after a RESTORE the newest commits may hold
    rows that the table no longer has.

    Args:
        version: As of that version of the table, so far as its log and files still reach; default: the newest.

    Raises:
        AnalysisException: The table has no such version, or no longer.
    """
    newest = tables.version(bronze) if version is None else version
    recent = tables.changes(bronze, max(0, newest - _FIRST_WINDOW), newest).where(ends())
    hint = recent.agg(F.max(F.struct(_lineage().alias("lineage"), "batch")).alias("last")).select("last.batch").first()
    for lower_bound in (hint["batch"] if hint is not None else None, None):
        rows = tables.read(bronze, version=version).where(ends())
        if lower_bound is not None:
            rows = rows.where(F.col("batch") >= lower_bound)
        last = _newest_first(rows).select("batch", "resume_token", "snapshot_id", _lineage().alias("lineage")).first()
        if last is not None:
            return Committed(last["batch"], last["resume_token"], last["snapshot_id"], last["lineage"])
    return None


def history(tables: Tables, bronze: TableName, limit: int) -> list[Ended]:
    """I/O: the ends of the newest *limit* batches, newest first."""
    rows = _newest_first(tables.read(bronze).where(ends())).limit(limit)
    return [_ended(row) for row in rows.collect()]


def last_before_hole(tables: Tables, bronze: TableName) -> Committed | None:
    """I/O: where bronze is whole up to, after a RESTORE under a running capture may have torn a hole into its batches. Reads all ends."""
    rows = tables.read(bronze).where(ends()).select("batch", "resume_token", "snapshot_id", _lineage().alias("lineage")).orderBy("batch")
    last: Committed | None = None
    for row in rows.toLocalIterator():
        if last is not None and row["batch"] > last.batch + 1:
            break
        last = Committed(row["batch"], row["resume_token"], row["snapshot_id"], row["lineage"])
    return last


def was_restored(commits: Sequence[Row]) -> bool:
    """Whether bronze was restored to an older version and no lineage was opened since.

    Args:
        commits: As `Tables.history` returns them, newest first.
    """
    for commit in commits:
        if commit["operation"] == "RESTORE":
            return True
        if (commit["userMetadata"] or "").endswith((":restored", ":reset")):
            return False
    return False


def _newest_first(rows: DataFrame) -> DataFrame:
    return rows.orderBy(_lineage().desc(), F.col("batch").desc())


def _ended(row: Row) -> Ended:
    control = row["op"] in ("heartbeat", "offset", "gap")
    kind = (row["operation_type"] if row["op"] == "offset" else row["op"]) if control else "events"
    at = row["captured_at"].astimezone(UTC)  # Spark hands timestamps out in the process's zone, without saying so
    return Ended(row["batch"], row["lineage"] or 1, at, kind, row["resume_token"], row["after"] if control else None, row["writer"])
