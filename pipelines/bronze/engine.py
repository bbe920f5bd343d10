"""Engines that append rows to bronze, exactly once or not at all.

Rare appends use Spark with either engine: a new lineage, documents that were read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from pipelines.bronze.envelope import Batch
from pipelines.bronze.stream_rows import one_file, stream_rows
from pipelines.io.append_result import AlreadyAppended, Anchor, Appended, LostRace, WriterEnded
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import BRONZE_DDL
from pipelines.model.tables import TableName

Reader = Callable[[], Iterator[pa.RecordBatch]]
"""Function that reads rows for bronze. It can be sent to another process."""


@dataclass(frozen=True)
class TransactionId:
    """Idempotency key of an append, and the proof of its writer."""

    app_id: str
    sequence: int
    proof: str
    """Unique text, stored in the commit's ``userMetadata``."""


class Engine(Protocol):
    """I/O: each append is one commit that is proven to be ours, or none if the sequence is taken."""

    def append_batch(self, batch: Batch, once: TransactionId) -> Appended | AlreadyAppended:
        """Append the events of a batch."""

    def append_rows(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        """Append a few rows."""

    def append_read(self, read: Reader, once: TransactionId) -> Appended | AlreadyAppended:
        """Append rows that another process reads."""

    def alone(self) -> AbstractContextManager[object]:
        """Block appends of this process while it commits to the table through Spark."""

    def close(self) -> None:
        """Stop the processes of the engine."""


@dataclass
class SparkEngine:
    """Executors parse, read and write. The lake may be anywhere.

    Args:
        id: The table's, when it was opened.
        looked_up_to: Version of the table. Every later commit is read at least once.
    """

    tables: Tables
    table: TableName
    id: str
    looked_up_to: int = -1
    _first_tries: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """By application id: newest sequence, and a version before its first attempt. A commit without answer is later."""
    _anchor: Anchor | None = field(default=None, init=False)
    """The newest commit that was made here."""

    def append_batch(self, batch: Batch, once: TransactionId) -> Appended | AlreadyAppended:
        with stream_rows(self.tables.spark, batch) as rows:
            return self._append(rows, once)

    def append_rows(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        return self._append(one_file(self.tables.spark, rows), once)

    def append_read(self, read: Reader, once: TransactionId) -> Appended | AlreadyAppended:
        def reading(one: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in (
                one
            ):  # a Python worker that leaves a part of its input is ended, and the next chunk would wait for a new one
                yield from read()

        return self._append(self.tables.spark.range(0, 1, 1, 1).mapInArrow(reading, BRONZE_DDL), once)

    def _append(self, rows: DataFrame, once: TransactionId) -> Appended | AlreadyAppended:
        while True:
            if not isinstance(outcome := self.try_append(rows, once), LostRace):
                return outcome

    def try_append(self, rows: DataFrame, once: TransactionId) -> Appended | AlreadyAppended | LostRace:
        """I/O: one attempt to append."""
        sequence, after = self._first_tries.get(once.app_id, (-1, -1))
        if sequence != once.sequence:
            after = self.looked_up_to
            self._first_tries[once.app_id] = (once.sequence, after)
        outcome = self.tables.append_once(
            self.table,
            rows,
            app_id=once.app_id,
            sequence=once.sequence,
            proof=once.proof,
            after=after,
            anchor=self._anchor,
        )
        if isinstance(outcome, Appended):
            self._check_place(outcome)
            self.looked_up_to = max(self.looked_up_to, outcome.looked_up_to)
            if self._anchor is None or outcome.version > self._anchor.version:
                self._anchor = Anchor(outcome.version, once.proof)
        return outcome

    def _check_place(self, landed: Appended) -> None:
        """Raise WriterEnded if the commit went into another table, or into an older copy of this one.

        The search for the commit's proof also meets the anchor. Without an anchor the table's id is read, which is a
        Spark job: at the first commit, and after log clean-up.
        """
        if not (self.tables.id(self.table) == self.id if landed.anchored is None else landed.anchored):
            raise WriterEnded(
                f"{self.table} no longer holds what this writer committed before; nothing is lost",
                next_step="strandline capture: it goes on from what the table holds",
            )

    def alone(self) -> AbstractContextManager[object]:
        return nullcontext()  # Delta itself orders commits

    def close(self) -> None:
        """Do nothing: the session belongs to the caller."""
