"""Quarantine tables of a lake. No Spark."""

from __future__ import annotations

from strandline.io.tables.table_store import TableStore
from strandline.model.quarantine import is_quarantine_of, quarantine_of
from strandline.model.tables import TableName


def tables_with_quarantine(tables: TableStore) -> list[TableName]:
    """Return every silver table with a quarantine table, sorted.

    I/O: lists silver tables and reads table properties.
    """
    names = set(tables.names("silver"))
    having = (name for name in names if quarantine_of(name) in names)
    return sorted(name for name in having if is_quarantine_of(name, tables.properties(quarantine_of(name))))
