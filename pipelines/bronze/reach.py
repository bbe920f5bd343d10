"""How far bronze reaches at one of its versions, and whether that is a moment of the source."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pyspark.sql import functions as F

from pipelines.bronze.offsets import committed, ends
from pipelines.io.tables import Tables
from pipelines.model.tables import TableName


@dataclass(frozen=True)
class Reach:
    """What the rows of a range of versions reach, and how the range ends."""

    position: str | None
    """Of the newest event; None: there is none in the range."""
    read_position: str | None
    """The newest at which a snapshot read."""
    whole: bool
    """No transaction may go on behind the newest event."""
    snapshot_runs: bool

    def beside(self, position: str | None, read_position: str | None) -> Reach:
        """The same, where older rows reach those positions."""
        return replace(self, position=_later(self.position, position), read_position=_later(self.read_position, read_position))


def reach(tables: Tables, bronze: TableName, *, after: int, through: int) -> Reach:
    """I/O: reads the rows of versions above *after* (-1: all of the table), up to *through*, and the end of the last batch."""
    rows = tables.changes(bronze, after + 1, through) if after >= 0 else tables.read(bronze, version=through)
    is_event = F.col("batch").isNotNull() & F.col("position").isNotNull()
    newest = F.max_by(F.struct("position", "batch", "source.txn_number"), F.when(is_event, F.col("position"))).alias("newest")
    found = rows.agg(newest, F.max(F.when(F.col("op") == "r", F.col("position"))).alias("read")).first()
    assert found is not None  # an aggregate has one row
    event, last = found["newest"], committed(tables, bronze, version=through)
    whole = event is None or event["txn_number"] is None
    if not whole:
        token = event["position"].partition(":")[2]
        moved_on = last is not None and last.resume_token is not None and json.loads(last.resume_token)["_data"] > token
        ended = rows.where(ends() & (F.col("batch") == event["batch"])).select(F.max("whole")).first()
        whole = moved_on or (ended is not None and bool(ended[0]))
    runs = last is not None and last.snapshot_id is not None
    return Reach(None if event is None else event["position"], found["read"], whole, runs)


def _later(one: str | None, other: str | None) -> str | None:
    return max(filter(None, (one, other)), default=None)
