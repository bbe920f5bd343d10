"""``control.dead_letters``: what could not be taken as it is. One row a failure, however often it is met."""

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
    """One new failure; fields as the table's columns say."""

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
    """Reads and writes of the table."""

    tables: Tables
    table: TableName = DEAD_LETTERS

    def note(self, letters: Sequence[DeadLetter]) -> None:
        """I/O: as `note_rows`; nothing where there are none."""
        if letters:
            schema = schema_of(_SCHEMA_OF_NEW)
            self.note_rows(self.tables.spark.createDataFrame([astuple(letter) for letter in letters], schema))
            repeated = sum(letter.attempts - 1 for letter in letters)
            metrics.count_failures(repeated, retries=repeated)
            metrics.RECORDS_SKIPPED.inc(sum(letter.stage == "read" for letter in letters))

    def note_rows(self, rows: DataFrame) -> None:
        """I/O: one commit with those that are not there yet. Idempotent.

        Before what it speaks of is passed: after a crash between the two the same failure is met again, and noted already.

        Args:
            rows: Columns as the fields of `DeadLetter` (``class`` for *error_class*); a failure once.
        """
        schema = schema_of(DEAD_LETTERS_DDL)
        self.tables.create(self.table, schema)
        identity = F.concat_ws("\0", *(F.coalesce(F.col(name), F.lit("")) for name in _IDENTITY))
        never = F.lit(None).cast("timestamp")
        complete = {"id": F.substring(F.sha2(identity, 256), 1, 16), "status": F.lit("open"), "replayed_at": never}
        with metrics.LETTER_FAILURES.count_exceptions():
            noted = self.tables.insert_missing(self.table, rows.withColumns(complete).select(*schema.names), "id")
        metrics.LETTERS_PRODUCED.inc(noted)
        metrics.count_failures(noted, logged=noted)

    def read(self, source: str) -> DataFrame:
        """All rows of *source*; none where nothing has ever failed."""
        if not self.tables.exists(self.table):
            return self.tables.spark.createDataFrame([], schema_of(DEAD_LETTERS_DDL))
        return self.tables.read(self.table).where(F.col("source") == source)

    def resolve(self, identifier: str, status: Status, at: datetime) -> None:
        """I/O: one commit; one that is resolved already stays as it is."""
        changes = {"status": literal(status), "replayed_at": literal(at)}
        self.tables.update(self.table, changes, f"id = {literal(identifier)} AND status = 'open'")

    def purge(self, source: str, *, before: datetime | None, everything: bool) -> int:
        """I/O: one commit that deletes letters of *source* that are replayed or gone; open ones only if asked for. Returns how many.

        Args:
            before: Only those that were noted earlier.
            everything: Open ones, too.
        """
        if not self.tables.exists(self.table):
            return 0
        chosen = f"source = {literal(source)}" + ("" if everything else " AND status <> 'open'")
        return self.tables.delete(self.table, chosen if before is None else f"{chosen} AND at < {literal(before)}")
