"""``control.dead_letters``: events and documents that failed. One row per failure, even if it occurs again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from strandline.io.tables.table_store import TableStore
from strandline.io.telemetry import metrics
from strandline.model.query import Condition, Query
from strandline.model.table_schemas import DEAD_LETTERS, DEAD_LETTERS_DDL
from strandline.model.tables import TableName

Status = Literal["open", "replayed", "gone"]

IDENTITY: Final = ("source", "stage", "db", "collection", "key", "position")
"""Columns that identify a failure. `identifier` is a hash of them."""


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

    def row(self) -> dict[str, Any]:
        """Return the row of a new dead letter."""
        values = dict(vars(self))
        values["class"] = values.pop("error_class")
        return values | {"id": identifier(values), "status": "open", "replayed_at": None}


def identifier(row: Mapping[str, Any]) -> str:
    """Return the id of a failure: the first 16 hex digits of a SHA-256. Pure."""
    text = "\0".join(row[name] or "" for name in IDENTITY)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DeadLetters:
    """Reader and writer of the table."""

    tables: TableStore
    table: TableName = DEAD_LETTERS

    def add(self, letters: Sequence[DeadLetter]) -> None:
        """Insert *letters* that are missing, in one commit; no commit without letters. Idempotent.

        I/O: writes one commit to ``control.dead_letters``. Call it before the failed event is skipped: after a crash
        between the two the same failure occurs again, and its row already exists.
        """
        if not letters:
            return
        rows = {row["id"]: row for row in (letter.row() for letter in letters)}
        with metrics.LETTER_FAILURES.count_exceptions():
            inserted = self.tables.insert_rows(self.table, DEAD_LETTERS_DDL, list(rows.values()), "id")
        count_added(inserted)
        repeated = sum(letter.attempts - 1 for letter in letters)
        metrics.count_failures(repeated, retries=repeated)
        metrics.RECORDS_SKIPPED.inc(sum(letter.stage == "read" for letter in letters))

    def select(self, source: str, query: Query, *conditions: Condition) -> list[dict[str, Any]]:
        """Return the result of *query* over the rows of *source*. Empty if nothing has failed.

        I/O: reads the table.
        """
        if not self.tables.exists(self.table):
            return []
        return self.tables.query(query.where(("source", "=", source), *conditions))

    def find(self, source: str, identifier: str) -> dict[str, Any] | None:
        """Return all columns of one dead letter. None: there is none. I/O: reads the table."""
        if not self.tables.exists(self.table):
            return None
        rows = self.select(source, Query(self.table).select(*self.tables.columns(self.table)), ("id", "=", identifier))
        return rows[0] if rows else None

    def resolve(self, identifier: str, status: Status, at: datetime) -> None:
        """Set status and time of an open dead letter, in one commit. Other letters stay unchanged. Idempotent."""
        changes = {"status": status, "replayed_at": at}
        self.tables.update_rows(self.table, changes, ("id", "=", identifier), ("status", "=", "open"))

    def purge(self, source: str, *, before: datetime | None, everything: bool) -> int:
        """Delete dead letters of *source* that are replayed or gone, in one commit. Return their number.

        Args:
            before: Delete only letters from before this time. None: no limit.
            everything: Delete open letters too.
        """
        if not self.tables.exists(self.table):
            return 0
        chosen: list[Condition] = [("source", "=", source)]
        chosen += [] if everything else [("status", "<>", "open")]
        chosen += [] if before is None else [("at", "<", before)]
        return self.tables.delete_rows(self.table, *chosen)


def count_added(letters: int) -> None:
    """Count new dead letters in the metrics of this process."""
    metrics.LETTERS_PRODUCED.inc(letters)
    metrics.count_failures(letters, logged=letters)
