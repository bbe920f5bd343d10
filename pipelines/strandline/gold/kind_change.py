"""Change of a gold node from a table to a view, or from a view to a table: the name has one answer at a time."""

from __future__ import annotations

from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_swap import discard
from strandline.model.lake_format import require_ours
from strandline.model.tables import TableName


def make_room_for_view(tables: Tables, view: TableName) -> None:
    """Drop the table that has the name of a *view*. Otherwise readers would go on to find the table.

    I/O: drops at most one table. In a catalog without views the table stands for the view, and stays.

    Raises:
        ConfigurationError: Another program has made the table.
    """
    if not tables.exists(view) or not _stores_rows(tables, view):
        return
    require_ours(view, tables.properties(view))
    discard(tables, view)


def make_room_for_table(tables: Tables, table: TableName) -> None:
    """Drop the view of a catalog that has the name of a *table*.

    I/O: drops at most one view.

    Raises:
        ConfigurationError: Another program has made a table of that name.
    """
    if not tables.exists(table):
        return
    if _stores_rows(tables, table):
        require_ours(table, tables.properties(table))
    elif not tables.lake.by_path:
        tables.catalog.drop_view(table)


def _stores_rows(tables: Tables, table: TableName) -> bool:
    """Return False for a view of a catalog, and for a table that stands for one in a catalog without views."""
    if tables.lake.by_path:
        return True
    views = tables.catalog.views(table.layer)
    return views is not None and table.name not in views
