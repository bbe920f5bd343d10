"""Check that no newer release has written a lake. No Spark."""

from __future__ import annotations

from typing import Final

from pipelines.io.table_store import TableStore
from pipelines.model.lake_format import refuse_newer
from pipelines.model.tables import TableName

FIRST: Final = TableName("control", "cuts")
"""The first table to be migrated; bronze is the last. These two show whether a newer release has begun."""


def refuse_newer_lake(tables: TableStore, bronze: TableName) -> None:
    """I/O: reads properties of two tables. Raises ConfigurationError if a newer release has begun to write the lake."""
    for table in (FIRST, bronze):
        if tables.exists(table):
            refuse_newer(table, tables.properties(table))
