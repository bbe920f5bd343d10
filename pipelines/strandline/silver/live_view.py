"""Views of the live documents of silver tables, in a catalog: ``silver.orders_live`` of ``silver.orders``.

In a folder, and in a catalog without views, every function does nothing.
"""

from __future__ import annotations

import logging
from typing import Final

from pyspark.errors import PySparkException

from strandline.errors import one_line
from strandline.io.tables.ddl import properties_clause
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import HIDDEN
from strandline.model.tables import Lake, TableName, literal, live_of, quoted

_OWN: Final = "strandline.live_view_of"
"""Property of a view that Strandline made: the name of its table."""
_SUFFIX: Final = live_of(TableName("silver", "")).name
_log = logging.getLogger("strandline.silver")


def show_live(tables: Tables, table: TableName) -> None:
    """Create the view of *table* if nothing has its name. The view follows new columns of its table.

    I/O: lists the views of silver; writes at most one view. A failure is a warning: the table itself is complete.
    """
    if tables.lake.by_path:
        return
    view, catalog = live_of(table), tables.catalog
    try:
        if catalog.views(table.layer) is not None and not catalog.has(view):
            catalog.write_view(view, _definition(tables.lake, table))
    except PySparkException as error:  # each catalog has its own class for a missing right
        _log.warning("there is no view %s (%s); silver.live_views: false avoids the attempt", view, one_line(error))


def make_room(tables: Tables, table: TableName) -> None:
    """Drop a view of Strandline that has the name of a collection's *table*. I/O: drops at most one view."""
    if table.name.endswith(_SUFFIX) and _is_own(tables, table):
        _log.warning("the view %s is dropped: a collection has this name", table)
        tables.catalog.drop_view(table)


def drop_live(tables: Tables, table: TableName) -> None:
    """Drop the view of *table*. I/O: drops at most one view."""
    if table.layer == "silver" and _is_own(tables, live_of(table)):
        tables.catalog.drop_view(live_of(table))


def _is_own(tables: Tables, view: TableName) -> bool:
    if tables.lake.by_path or not tables.catalog.has(view):
        return False
    return view.name in (tables.catalog.views(view.layer) or ()) and _OWN in tables.properties(view)


def _definition(lake: Lake, table: TableName) -> str:
    """Return the definition of the view: live documents and all columns, also later ones, but for those in HIDDEN."""
    comment = f"Live documents of {table}, without most bookkeeping columns."
    return (
        f"WITH SCHEMA EVOLUTION COMMENT {literal(comment)} {properties_clause({_OWN: table.name})} "
        f"AS SELECT * EXCEPT ({', '.join(map(quoted, HIDDEN))}) FROM {lake.sql(table)} WHERE NOT _deleted"
    )
