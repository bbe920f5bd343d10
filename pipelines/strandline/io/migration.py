"""Migrate tables of an older lake format, one table at a time.

Each change is one commit. The format version is stored with the last change, or after it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from strandline.io.conflicts import retrying
from strandline.io.ddl import properties_clause
from strandline.io.format_check import older_tables
from strandline.model.lake_format import (
    FORMAT,
    STAMP,
    ColumnRename,
    format_of,
    pending,
    refuse_newer,
    renames,
)
from strandline.model.tables import TableName, literal, quoted

if TYPE_CHECKING:
    from strandline.io.tables import Tables

_log = logging.getLogger("strandline.migration")

_DELTAS_OWN: Final = ("delta.columnMapping.maxColumnId", "delta.feature.", "delta.rowTracking.", "delta.min")


def migrate_lake(tables: Tables, bronze: TableName, *, everything: bool = False) -> list[TableName]:
    """I/O: migrates every older table of a lake, and returns these tables. See `jobs.migration.migrate`."""
    if not tables.exists(bronze) or (not everything and format_of(tables.properties(bronze)) >= FORMAT):
        return []
    older = list(older_tables(tables, bronze))  # read all before a change: a newer one raises
    return [table for table, _ in older if migrate_table(tables, table)]


def migrate_table(tables: Tables, table: TableName) -> bool:
    """I/O: migrates *table* to the present format. Only reads the properties if nothing is to do. Idempotent.

    Of two concurrent processes one migrates, and the other finds the table migrated.

    Returns:
        True if the table was migrated.

    Raises:
        ConfigurationError: The table has a newer format. Nothing was written.

    Effects on failure:
        A column may have been added while the table still has its old format. Every release can read that. Calling
        again continues.
    """
    before = tables.properties(table)
    refuse_newer(table, before)
    if format_of(before) == FORMAT:
        return False
    for attempt in retrying():
        with attempt:
            _migrate_once(tables, table)
    _log.info("%s: format %d is now %d", table, format_of(before), FORMAT)
    return True


def _migrate_once(tables: Tables, table: TableName) -> None:
    properties = tables.properties(table)
    migrations = pending(properties)
    if not migrations:  # another process has migrated it
        return
    columns = set(tables.read(table).columns)
    changing = [column for column in renames(table, migrations) if column.old in columns]
    if any(column.rewritten for column in changing):
        _rewrite(tables, table, changing)
        return
    for column in changing:
        if column.new not in columns:
            _commit(tables, f"ALTER TABLE {tables.lake.sql(table)} ADD COLUMNS ({quoted(column.new)} {column.ddl})")
    tables.set_properties(table, STAMP)


def _rewrite(tables: Tables, table: TableName, changing: list[ColumnRename]) -> None:
    """Rewrite all rows in one commit, with the present names of columns and properties, and the format version."""
    sql, named = tables.lake.sql(table), {column.old: column.new for column in changing}
    columns = ", ".join(
        quoted(name) + (f" AS {quoted(named[name])}" if name in named else "") for name in tables.read(table).columns
    )
    properties = {name: value for name, value in tables.properties(table).items() if not name.startswith(_DELTAS_OWN)}
    described = f" COMMENT {literal(comment)}" if (comment := tables.detail(table)["description"]) else ""
    clause = properties_clause(properties | STAMP | tables.required_properties)
    try:
        _commit(tables, f"CREATE OR REPLACE TABLE {sql} USING delta{described} {clause} AS SELECT {columns} FROM {sql}")
    except AnalysisException:
        if (
            format_of(tables.properties(table)) != FORMAT
        ):  # otherwise another process has migrated it, and the old column is gone
            raise


def _commit(tables: Tables, statement: str) -> None:
    tables.spark.sql(statement)
