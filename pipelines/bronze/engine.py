"""How rows reach bronze: each way appends to the same table, once or not at all.

What is rare goes through Spark whatever the engine: a new lineage, documents that were read once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from pipelines.bronze.envelope import Batch
from pipelines.bronze.stream_rows import one_file, stream_rows
from pipelines.io.landed import Contended, Landed, Taken
from pipelines.io.tables import Tables
from pipelines.model.columns import BRONZE_DDL
from pipelines.model.tables import TableName

_ID_BELIEVED_SECONDS: Final = 60.0

Reader = Callable[[], Iterator[pa.RecordBatch]]
"""Reads rows of bronze from somewhere; it can be sent to another process."""


@dataclass(frozen=True)
class Once:
    """By what an append is known that was done before, and by whom."""

    app_id: str
    sequence: int
    proof: str
    """Stands in the commit's ``userMetadata``; no other commit has it."""


class Engine(Protocol):
    """I/O: one commit each, proven to be one's own, or none where the sequence is taken."""

    def append_batch(self, batch: Batch, once: Once) -> Landed | Taken:
        """Rows of events."""

    def append_rows(self, rows: pa.Table, once: Once) -> Landed | Taken:
        """A few rows that are there."""

    def append_read(self, read: Reader, once: Once) -> Landed | Taken:
        """Rows that another process reads."""

    def alone(self) -> AbstractContextManager[object]:
        """While something else of this process commits to the table through Spark: no append meets it."""

    def close(self) -> None:
        """Ends what was started."""


@dataclass
class SparkEngine:
    """Executors parse, read and write, wherever the lake is.

    Args:
        looked_up_to: A version of the table. Every later commit is looked at once at least.
    """

    tables: Tables
    table: TableName
    looked_up_to: int = -1
    _first_tries: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """The newest sequence of each application, and a version from before its first attempt: a commit whose answer was lost came later."""
    _folder: int | None = field(init=False)
    _id_read_at: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self._folder = self.tables.folder_mark(self.table)

    def append_batch(self, batch: Batch, once: Once) -> Landed | Taken:
        with stream_rows(self.tables.spark, batch) as rows:
            return self._append(rows, once)

    def append_rows(self, rows: pa.Table, once: Once) -> Landed | Taken:
        return self._append(one_file(self.tables.spark, rows), once)

    def append_read(self, read: Reader, once: Once) -> Landed | Taken:
        def reading(one: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in one:  # a Python worker that leaves a part of its input is ended, and the next chunk would wait for a new one
                yield from read()

        return self._append(self.tables.spark.range(0, 1, 1, 1).mapInArrow(reading, BRONZE_DDL), once)

    def _append(self, rows: DataFrame, once: Once) -> Landed | Taken:
        while True:
            if not isinstance(outcome := self.try_append(rows, once), Contended):
                return outcome

    def try_append(self, rows: DataFrame, once: Once) -> Landed | Taken | Contended:
        """I/O: one attempt."""
        sequence, after = self._first_tries.get(once.app_id, (-1, -1))
        if sequence != once.sequence:
            after = self.looked_up_to
            self._first_tries[once.app_id] = (once.sequence, after)
        outcome = self.tables.append_once(self.table, rows, app_id=once.app_id, sequence=once.sequence, proof=once.proof, after=after)
        if isinstance(outcome, Landed):
            self.looked_up_to = max(self.looked_up_to, outcome.looked_up_to)
            return replace(outcome, table_id=self._new_id())
        return outcome

    def _new_id(self) -> str | None:
        """I/O: the table's id, where another table may have taken its place. Elsewhere than in a folder of this machine nothing tells that,
        and to ask is a job: the answer is believed for a minute."""
        folder = self.tables.folder_mark(self.table)
        if folder == self._folder and (folder is not None or time.monotonic() - self._id_read_at < _ID_BELIEVED_SECONDS):
            return None
        found = self.tables.id(self.table)
        self._folder, self._id_read_at = folder, time.monotonic()
        return found

    def alone(self) -> AbstractContextManager[object]:
        return nullcontext()  # Delta orders its own commits

    def close(self) -> None:
        """Spark is somebody else's."""
