"""``control.dead_letters``: what could not be taken as it is. One row a failure, however often it is met."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.io.tables import Tables, schema_of
from pipelines.model.columns import DEAD_LETTERS, DEAD_LETTERS_DDL
from pipelines.model.tables import TableName

Status = Literal["open", "replayed", "gone"]


@dataclass(frozen=True)
class DeadLetter:
    """One failure; fields as the table's columns say."""

    id: str
    source: str
    stage: Literal["read", "convert"]
    error_class: str
    message: str
    position: str | None
    db: str | None
    collection: str | None
    collection_uuid: str | None
    key: str | None
    attempts: int
    at: datetime
    status: Status
    replayed_at: datetime | None
    raw: bytes


def letter_id(source: str, stage: str, db: str | None, collection: str | None, key: str | None, position: str | None) -> str:
    """Sixteen hex digits that name a failure; met again, it has the same."""
    parts = (source, stage, db or "", collection or "", key or "", position or "")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class DeadLetters:
    """Reads and writes of the table."""

    tables: Tables
    table: TableName = DEAD_LETTERS

    def note(self, letters: Sequence[DeadLetter]) -> None:
        """I/O: one commit with those that are not there yet; none where there are none. Idempotent.

        Before what it speaks of is passed: a crash between the two only meets the failure again.
        """
        if not letters:
            return
        schema = schema_of(DEAD_LETTERS_DDL)
        self.tables.create(self.table, schema)
        rows = self.tables.spark.createDataFrame([astuple(letter) for letter in letters], schema)
        self.tables.insert_missing(self.table, rows, key="id")

    def read(self, source: str | None = None) -> DataFrame:
        """All rows of *source*, oldest first; none where nothing has ever failed."""
        if not self.tables.exists(self.table):
            return self.tables.spark.createDataFrame([], schema_of(DEAD_LETTERS_DDL))
        rows = self.tables.read(self.table)
        return rows if source is None else rows.where(F.col("source") == source)

    def resolve(self, ids: Sequence[str], status: Status, at: datetime) -> None:
        """I/O: one commit; those that are resolved already stay as they are."""
        if ids:
            chosen = F.col("id").isin(*ids) & (F.col("status") == "open")
            self.tables.delta(self.table).update(chosen, {"status": F.lit(status), "replayed_at": F.lit(at)})

    def purge(self, chosen: Column) -> int:
        """I/O: one commit that deletes the *chosen* rows. Returns how many."""
        if not self.tables.exists(self.table):
            return 0
        self.tables.delta(self.table).delete(chosen)
        return int(self.tables.history(self.table)[0]["operationMetrics"].get("numDeletedRows", 0))
