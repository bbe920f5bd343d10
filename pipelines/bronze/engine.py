"""How rows reach bronze: each way appends to the same table, once or not at all.

What is rare goes through Spark whatever the engine: a new lineage, documents that were read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from pipelines.bronze.envelope import Batch
from pipelines.bronze.stream_rows import one_file, stream_rows
from pipelines.io.landed import Landed
from pipelines.io.tables import Tables
from pipelines.model.columns import BRONZE_DDL
from pipelines.model.tables import TableName

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
    """I/O: one commit each, proven to be one's own. None: somebody else committed that sequence, and no row was added."""

    def append_batch(self, batch: Batch, once: Once) -> Landed | None:
        """Rows of events."""

    def append_rows(self, rows: pa.Table, once: Once) -> Landed | None:
        """A few rows that are there."""

    def append_read(self, read: Reader, once: Once) -> Landed | None:
        """Rows that another process reads."""

    def alone(self) -> AbstractContextManager[object]:
        """While something else of this process commits to the table through Spark: no append meets it."""

    def close(self) -> None:
        """Ends what was started."""


@dataclass(frozen=True)
class SparkEngine:
    """Executors parse, read and write, wherever the lake is."""

    tables: Tables
    table: TableName

    def append_batch(self, batch: Batch, once: Once) -> Landed | None:
        with stream_rows(self.tables.spark, batch) as rows:
            return self._append(rows, once)

    def append_rows(self, rows: pa.Table, once: Once) -> Landed | None:
        return self._append(one_file(self.tables.spark, rows), once)

    def append_read(self, read: Reader, once: Once) -> Landed | None:
        def reading(one: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in one:  # a Python worker that leaves a part of its input is ended, and the next chunk would wait for a new one
                yield from read()

        return self._append(self.tables.spark.range(0, 1, 1, 1).mapInArrow(reading, BRONZE_DDL), once)

    def _append(self, rows: DataFrame, once: Once) -> Landed | None:
        return self.tables.append_once(self.table, rows, app_id=once.app_id, sequence=once.sequence, proof=once.proof)

    def alone(self) -> AbstractContextManager[object]:
        return nullcontext()  # Delta orders its own commits

    def close(self) -> None:
        """Spark is somebody else's."""
