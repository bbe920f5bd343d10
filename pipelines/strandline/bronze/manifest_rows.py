"""Read control rows of a snapshot from bronze."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from strandline.io.tables.table_store import TableStore
from strandline.model.query import Query
from strandline.model.tables import TableName


def manifest_row(
    tables: TableStore, bronze: TableName, snapshot_id: str, chunk: int, words: Collection[str]
) -> dict[str, Any] | None:
    """I/O: control row of a chunk (-1: of the snapshot) with one of *words* as ``operation_type``. None: missing."""
    rows = control_rows(bronze).where(
        ("snapshot_id", "=", snapshot_id), ("chunk", "=", chunk), ("operation_type", "in", words)
    )
    matches = tables.query(rows.select("operation_type", "after").limit(1))
    return matches[0] if matches else None


def control_rows(bronze: TableName) -> Query:
    """Return a query of the control rows of all snapshots."""
    return Query(bronze).where(("op", "=", "snapshot"), ("snapshot_id", "is not null", None))
