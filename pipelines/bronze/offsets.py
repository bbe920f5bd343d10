"""The position that bronze remembers: the row of the highest batch. There is no other offset store."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.io.tables import Tables
from pipelines.model.tables import TableName

_FIRST_WINDOW = 8


@dataclass(frozen=True)
class Committed:
    """The end of the last committed batch."""

    batch: int
    resume_token: str
    snapshot_id: str | None
    """The snapshot that was still running then."""


def committed(tables: Tables, bronze: TableName) -> Committed | None:
    """I/O: reads the newest commits of *bronze*, whatever its size; None before the first batch.

    The highest batch of the last few commits bounds a file-pruned look at the table itself, which alone decides: after a RESTORE the
    newest commits may hold rows that the table no longer has.
    """
    newest = tables.version(bronze)
    hint = _highest_batch(tables.changes(bronze, max(0, newest - _FIRST_WINDOW), newest))
    for lower_bound in (hint, None):
        rows = tables.read(bronze).where(F.col("resume_token").isNotNull())
        if lower_bound is not None:
            rows = rows.where(F.col("batch") >= lower_bound)
        last = rows.orderBy(F.col("batch").desc()).select("batch", "resume_token", "snapshot_id").first()
        if last is not None:
            return Committed(last["batch"], last["resume_token"], last["snapshot_id"])
    return None


def _highest_batch(rows: DataFrame) -> int | None:
    highest = rows.agg(F.max("batch").alias("batch")).first()
    return None if highest is None else highest["batch"]
