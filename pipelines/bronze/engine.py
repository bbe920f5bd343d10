"""How rows reach bronze: each way appends to the same table, once or not at all.

What is rare goes through Spark whatever the engine: a new lineage, documents that were read once more.
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
"""Reads rows of bronze from somewhere; it can be sent to another process."""


@dataclass(frozen=True)
class TransactionId:
    """By what an append is known that was done before, and by whom."""

    app_id: str
    sequence: int
    proof: str
    """Stands in the commit's ``userMetadata``; no other commit has it."""


class Engine(Protocol):
    """I/O: one commit each, proven to be one's own, or none where the sequence is taken."""

    def append_batch(self, batch: Batch, once: TransactionId) -> Appended | AlreadyAppended:
        """Rows of events."""

    def append_rows(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        """A few rows that are there."""

    def append_read(self, read: Reader, once: TransactionId) -> Appended | AlreadyAppended:
        """Rows that another process reads."""

    def alone(self) -> AbstractContextManager[object]:
        """While something else of this process commits to the table through Spark: no append meets it."""

    def close(self) -> None:
        """Ends what was started."""


@dataclass
class SparkEngine:
    """Executors parse, read and write, wherever the lake is.

    Args:
        id: The table's, when it was opened.
        looked_up_to: A version of the table. Every later commit is looked at once at least.
    """

    tables: Tables
    table: TableName
    id: str
    looked_up_to: int = -1
    _first_tries: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """The newest sequence of each application, and a version from before its first attempt: a commit whose answer was lost came later."""
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
        """I/O: one attempt."""
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
        """Raises WriterEnded where the commit went into another table, or into an older copy of this one.

        The look for the commit's own proof meets the anchor, too. With no anchor the table is asked for its id, which is a job: at the
        first commit, and where the log was cleaned up.
        """
        if not (self.tables.id(self.table) == self.id if landed.anchored is None else landed.anchored):
            raise WriterEnded(
                f"{self.table} no longer holds what this writer committed before; nothing is lost",
                next_step="strandline capture: it goes on from what the table holds",
            )

    def alone(self) -> AbstractContextManager[object]:
        return nullcontext()  # Delta orders its own commits

    def close(self) -> None:
        """Spark is somebody else's."""
