"""Processed signals: one ``signal`` row each, in the same commit as the effect of the signal."""

from __future__ import annotations

from collections.abc import Collection

from strandline.io.tables.table_store import TableStore
from strandline.model.query import Query
from strandline.model.tables import TableName


def acted_upon(tables: TableStore, bronze: TableName, keys: Collection[str]) -> set[str]:
    """I/O: the *keys* that bronze has a row for. Statistics of ``snapshot_id`` skip nearly every file."""
    if not keys:
        return set()
    rows = Query(bronze).where(("snapshot_id", "in", keys), ("op", "=", "signal"))
    return {row["snapshot_id"] for row in tables.query(rows.group("snapshot_id"))}
