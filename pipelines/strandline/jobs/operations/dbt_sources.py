"""Silver and gold tables as the sources of a dbt project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.io.tables.table_store import own_tables
from strandline.jobs.lake_context import LakeContext
from strandline.model.dbt_sources import DescribedTable, DuckDbReader, dbt_sources
from strandline.model.table_schemas import HIDDEN, has_bookkeeping
from strandline.model.tables import Layer, TableName, live_of


def lake_sources(ctx: LakeContext, reader: DuckDbReader) -> dict[str, Any]:
    """Return the content of a sources file: silver tables with their live views, and gold tables.

    I/O: reads the schemas.
    """
    described = [table for layer in ("silver", "gold") for table in _described(ctx, layer)]
    return dbt_sources(ctx.tables.lake, described, reader)


def _described(ctx: LakeContext, layer: Layer) -> Iterator[DescribedTable]:
    tables = ctx.tables
    names = own_tables(tables, layer)
    for table in names:
        types, comments = tables.column_types(table), tables.column_comments(table)
        is_silver = layer == "silver" and has_bookkeeping(types)
        yield DescribedTable(table, _description(table, is_silver=is_silver), types, comments)
        live = live_of(table)
        if is_silver and not tables.lake.by_path and live not in names and tables.exists(live):
            shown = {name: kind for name, kind in types.items() if name not in HIDDEN}
            yield DescribedTable(live, f"Live documents of {table}.", shown, comments)


def _description(table: TableName, *, is_silver: bool) -> str:
    return f"{table}, with tombstones: live documents are NOT _deleted." if is_silver else str(table)
