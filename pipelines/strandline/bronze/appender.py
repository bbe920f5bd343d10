"""Appends to bronze without fencing, for documents that were read again. Repeated rows do no harm. No Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from strandline.bronze.envelope import Stamp
from strandline.bronze.ownership import check_owner
from strandline.io.tables.table_store import TableStore
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName


@dataclass
class BronzeAppender:
    """Appends rows to ``bronze.<source>``, with or without a running capture. Holds nothing open.

    Args:
        writer: Id of this run. It is stored in every row.
        clock_us: Microseconds since the epoch, UTC.
        stored_json: Fill the JSON columns at capture.
    """

    tables: TableStore
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
        """I/O: raises as `BronzeWriter.open` if the table has another owner or stream. Writes nothing."""
        check_owner(self.table, self.tables.properties(self.table), self.source, identity, stream)

    def append(self, rows: pa.Table) -> None:
        """I/O: one commit of a few *rows*. A repeated call appends them again."""
        self.tables.append_rows(self.table, rows)
