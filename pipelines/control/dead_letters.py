"""``control.dead_letters``: events and documents that failed. One row per failure, even if it occurs again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.io import metrics
from pipelines.io.ddl import schema_of
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import DEAD_LETTERS, DEAD_LETTERS_DDL
from pipelines.model.tables import TableName, literal

Status = Literal["open", "replayed", "gone"]

_IDENTITY: Final = ("source", "stage", "db", "collection", "key", "position")
_SCHEMA_OF_NEW: Final = (
    "source STRING, stage STRING, class STRING, message STRING, position STRING, db STRING, collection STRING, "
    + ("collection_uuid STRING, key STRING, attempts INT, at TIMESTAMP, raw BINARY")
)


@dataclass(frozen=True)
class DeadLetter:
    """One new failure. The columns of the table describe the fields."""

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
    raw: bytes


@dataclass(frozen=True)
class DeadLetters:
    """Reader and writer of the table."""

    tables: Tables
    table: TableName = DEAD_LETTERS

    def add(self, letters: Sequence[DeadLetter]) -> None:
        """Insert *letters* that are missing, in one commit; no commit without letters. Idempotent.

        I/O: see `add_rows`.
        """
        if letters:
            schema = schema_of(_SCHEMA_OF_NEW)
            self.add_rows(self.tables.spark.createDataFrame([astuple(letter) for letter in letters], schema))
            repeated = sum(letter.attempts - 1 for letter in letters)
            metrics.count_failures(repeated, retries=repeated)
            metrics.RECORDS_SKIPPED.inc(sum(letter.stage == "read" for letter in letters))

    def add_rows(self, rows: DataFrame) -> None:
        """Insert the *rows* that are missing. Idempotent.

        I/O: writes one commit to ``control.dead_letters``. Call it before the failed event is skipped: after a crash
        between the two the same failure occurs again, and its row already exists.

        Args:
            rows: Columns as the fields of `DeadLetter` (``class`` for *error_class*). Each failure at most once.
        """
        schema = schema_of(DEAD_LETTERS_DDL)
        self.tables.create(self.table, schema)
        identity = F.concat_ws("\0", *(F.coalesce(F.col(name), F.lit("")) for name in _IDENTITY))
        never = F.lit(None).cast("timestamp")
        complete = {"id": F.substring(F.sha2(identity, 256), 1, 16), "status": F.lit("open"), "replayed_at": never}
        with metrics.LETTER_FAILURES.count_exceptions():
            inserted = self.tables.insert_missing(self.table, rows.withColumns(complete).select(*schema.names), "id")
        metrics.LETTERS_PRODUCED.inc(inserted)
        metrics.count_failures(inserted, logged=inserted)

    def read(self, source: str) -> DataFrame:
        """Return all rows of *source*. Empty if nothing has failed or the table does not exist."""
        if not self.tables.exists(self.table):
            return self.tables.spark.createDataFrame([], schema_of(DEAD_LETTERS_DDL))
        return self.tables.read(self.table).where(F.col("source") == source)

    def resolve(self, identifier: str, status: Status, at: datetime) -> None:
        """Set status and time of an open dead letter, in one commit. Other letters stay unchanged. Idempotent."""
        changes = {"status": literal(status), "replayed_at": literal(at)}
        self.tables.update(self.table, changes, f"id = {literal(identifier)} AND status = 'open'")

    def purge(self, source: str, *, before: datetime | None, everything: bool) -> int:
        """Delete dead letters of *source* that are replayed or gone, in one commit. Return their number.

        Args:
            before: Delete only letters from before this time. None: no limit.
            everything: Delete open letters too.
        """
        if not self.tables.exists(self.table):
            return 0
        chosen = f"source = {literal(source)}" + ("" if everything else " AND status <> 'open'")
        return self.tables.delete(self.table, chosen if before is None else f"{chosen} AND at < {literal(before)}")
