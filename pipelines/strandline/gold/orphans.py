"""Gold tables that outlive their SQL file: it was removed or renamed. No Spark."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from strandline.io.tables.table_store import TableStore
from strandline.model.lake_format import FORMAT_PROPERTY
from strandline.model.tables import TableName

ORPHANED: Final = "no SQL file makes it, so its rows stay those of its last build"
"""Fact about an orphan."""


def orphans(tables: TableStore, nodes: Collection[str]) -> list[TableName]:
    """Return the tables that gold has built and that none of the *nodes* makes, sorted.

    I/O: lists the tables of gold, and reads properties of those without a node.
    """
    return [table for table in tables.names("gold") if table.name not in nodes and is_built(tables, table)]


def is_built(tables: TableStore, table: TableName) -> bool:
    """Return True if Strandline has made *table*, which exists. I/O: reads its properties."""
    return FORMAT_PROPERTY in tables.properties(table)


def advice(table: TableName) -> str:
    """Return the fact about an orphan, and the command that removes it."""
    return f"{ORPHANED}; strandline gold drop {table.name} removes it"
