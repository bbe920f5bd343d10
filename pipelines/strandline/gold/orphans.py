"""Gold tables that outlive their SQL file: it was removed or renamed. No Spark."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from strandline.io.tables.table_store import TableStore, own_tables
from strandline.model.tables import TableName

ORPHANED: Final = "no SQL file makes it, so its rows stay those of its last build"
"""Fact about an orphan."""


def orphans(tables: TableStore, nodes: Collection[str]) -> list[TableName]:
    """Return the tables that gold has built and that none of the *nodes* makes, sorted.

    I/O: lists the tables of gold, and reads their properties.
    """
    return [table for table in own_tables(tables, "gold") if table.name not in nodes]


def advice(table: TableName) -> str:
    """Return the fact about an orphan, and the command that removes it."""
    return f"{ORPHANED}; strandline gold drop {table.name} removes it"
