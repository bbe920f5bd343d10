"""Format of a lake: tables of an older or a newer release. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.io.table_store import TableStore
from strandline.model.lake_format import FORMAT, format_of, is_ours, pending, refuse_newer, renames
from strandline.model.tables import TableName

FIRST: Final = TableName("control", "cuts")
"""The first table to be migrated; bronze is the last. These two show whether a newer release has begun."""


def refuse_newer_lake(tables: TableStore, bronze: TableName) -> None:
    """I/O: reads properties of two tables. Raises ConfigurationError if a newer release has begun to write the lake."""
    for table in (FIRST, bronze):
        if tables.exists(table):
            refuse_newer(table, tables.properties(table))


def has_present_format(tables: TableStore, bronze: TableName) -> bool:
    """I/O: returns True if no table of an older format is left. Reads properties of one table: bronze is migrated last.

    Without bronze nothing was captured yet.
    """
    return not tables.exists(bronze) or format_of(tables.properties(bronze)) >= FORMAT


def older_tables(tables: TableStore, bronze: TableName) -> Iterator[tuple[TableName, int]]:
    """I/O: yields each table of an older format with its format, in the order of migration.

    Bronze of this source is last: if it has the present format, all other tables have it.
    """
    others = [table for layer in ("control", "silver", "gold") for table in tables.names(layer)]
    for table in [*sorted(others, key=lambda name: name != FIRST), bronze]:
        if not tables.exists(table):
            continue
        found = tables.properties(table)
        refuse_newer(table, found)
        if is_ours(table, found) and format_of(found) < FORMAT:
            yield table, format_of(found)


def words_for(tables: TableStore, table: TableName) -> str:
    """I/O: describes the migration of a table in words."""
    columns = set(tables.columns(table))
    told = [
        f"{column.old} becomes {column.new}"
        for column in renames(table, pending(tables.properties(table)))
        if column.old in columns
    ]
    return f"{table} ({', '.join(told)})" if told else str(table)
