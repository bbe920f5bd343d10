"""Rows of bronze that nothing fences: a document that was read once more, whoever lands it and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from pipelines.bronze.envelope import Stamp
from pipelines.bronze.ownership import check_owner
from pipelines.bronze.stream_rows import one_file
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import bronze_table
from pipelines.model.tables import TableName


@dataclass
class BronzeAppender:
    """Appends to ``bronze.<source>``, beside a running capture or without one. There is nothing to open and nothing to close.

    Args:
        writer: Names this run; stands in every row.
        clock_us: Microseconds since the epoch, UTC.
        stored_json: Fill the JSON columns at capture.
    """

    tables: Tables
    source: str
    writer: str
    clock_us: Callable[[], int]
    stored_json: bool = False

    @property
    def table(self) -> TableName:
        return bronze_table(self.source)

    def stamp(self) -> Stamp:
        return Stamp(self.source, self.writer, self.clock_us())

    def check_owner(self, identity: str, stream: str | None) -> None:
        """I/O: raises as `BronzeWriter.open` where the table belongs to another source, or to another stream of it; writes nothing."""
        check_owner(self.table, self.tables.properties(self.table), self.source, identity, stream)

    def append(self, rows: pa.Table) -> None:
        """I/O: one commit of a few *rows*. Calling it again appends them again."""
        self.append_frame(one_file(self.tables.spark, rows))

    def append_frame(self, rows: DataFrame) -> None:
        """I/O: the same with rows that executors read."""
        self.tables.append(self.table, rows)
