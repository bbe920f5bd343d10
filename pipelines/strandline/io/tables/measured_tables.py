"""Tables of a lake with their sizes, for the page and the doctor: read from the logs, without Spark."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow.compute as pc

from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.delta_rs_query import arrow_table
from strandline.io.delta_log.log_activity import AppendedRows
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.tables import TableName


@dataclass(frozen=True)
class TableSize:
    """Size of a table, read from its log. No data file is opened."""

    rows: int
    """Rows in the data files, without rows that deletion vectors mark."""
    files: int
    bytes: int
    version: int
    checkpoint: int | None
    """Version of the newest checkpoint. -1: none. None: not known."""
    changed_at: datetime | None
    """Time of the newest commit, UTC. None: the commit does not say."""


@dataclass(frozen=True)
class MeasuredTables(DeltaRsTables):
    """`DeltaRsTables` that also tells how large and how busy a table is."""

    @cached_property
    def _appended(self) -> dict[TableName, AppendedRows]:
        return {}

    def size(self, table: TableName) -> TableSize:
        """Return the size of *table*. I/O: reads its log."""
        delta_table, log = self._open(table), LogFolder(self.folder(table))
        files = arrow_table(delta_table.get_add_actions(flatten=True))
        rows = pc.sum(files["num_records"]).as_py() or 0
        marked = "deletion_vector.cardinality"
        rows -= (pc.sum(files[marked]).as_py() or 0) if marked in files.schema.names else 0
        version = int(delta_table.version())
        return TableSize(
            rows=int(rows),
            files=files.num_rows,
            bytes=int(pc.sum(files["size_bytes"]).as_py() or 0),
            version=version,
            checkpoint=log.checkpoint(),
            changed_at=_time_of(log.actions(version, naming='"commitInfo"')),
        )

    def added_per_minute(self, table: TableName) -> list[int]:
        """Return the rows that *table* got in each of the last minutes, oldest first. I/O: reads new files of its log.

        No rows: there is no such table.
        """
        log = LogFolder(self.folder(table))
        return self._appended.setdefault(table, AppendedRows()).per_minute(log, time.time())


def _time_of(actions: list[dict[str, Any]] | None) -> datetime | None:
    """Return the time that a commit stores. None: it stores none."""
    infos = (action["commitInfo"] for action in actions or () if "commitInfo" in action)
    milliseconds = next((info.get("timestamp") for info in infos), None)
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
