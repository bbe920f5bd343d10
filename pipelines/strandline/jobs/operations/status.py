"""Status of the silver tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from strandline.bronze.ownership import SOURCE
from strandline.io.tables.table_store import TableStore, own_tables
from strandline.jobs.lake_context import LakeContext
from strandline.model.quarantine import quarantine_of
from strandline.model.query import Query
from strandline.model.table_schemas import BOOKKEEPING, has_bookkeeping
from strandline.model.tables import TableName
from strandline.model.timestamps import utc
from strandline.quality.quarantine_tables import tables_with_quarantine
from strandline.settings.configuration import Settings
from strandline.silver.fold.step import OVERSIZE, WAITING, reasons_in

_REASON: Final = "_inexact_because"


@dataclass(frozen=True)
class TableStatus:
    """Row counts of one silver table."""

    table: TableName
    live: int
    tombstones: int
    rescued: int
    """Rows with a value in `_rescued`."""
    waiting: int
    """Live rows with pending patches."""
    stale: int
    """Live rows that lack a change because of `capture.cursor_oversize_skip_threshold`."""
    newest_change: datetime | None
    """Cluster time of the newest change, UTC; None: the table is empty."""


@dataclass(frozen=True)
class ColumnType:
    """Column of a silver table that comes from the documents."""

    table: TableName
    column: str
    type: str


def silver_status(ctx: LakeContext, source: str | None = None) -> list[TableStatus]:
    """Return the row counts of silver tables. I/O: runs one small aggregate per table.

    Args:
        source: Only the tables that this source feeds. None: all tables of the lake.
    """
    return [
        table_status(ctx.tables, table)
        for table, _ in silver_tables(ctx.tables)
        if source is None or ctx.tables.properties(table).get(SOURCE, source) == source
    ]


def table_status(tables: TableStore, table: TableName) -> TableStatus:
    """Return the row counts of one silver table. I/O: runs one small aggregate."""
    groups = tables.query(
        Query(table)
        .group("_deleted", _REASON)
        .aggregate(
            rows=("count", "_position"),
            rescued=("count", "_rescued"),
            newest=("max", "_cluster_time"),
        )
    )
    live = [group for group in groups if not group["_deleted"]]
    return TableStatus(
        table,
        live=sum(group["rows"] for group in live),
        tombstones=sum(group["rows"] for group in groups if group["_deleted"]),
        rescued=sum(group["rescued"] for group in groups),
        waiting=sum(_with_reason(group, WAITING) for group in live),
        stale=sum(_with_reason(group, OVERSIZE) for group in live),
        newest_change=max((utc(group["newest"]) for group in groups if group["newest"]), default=None),
    )


def _with_reason(group: dict[str, Any], reason: str) -> int:
    return int(group["rows"]) if reason in reasons_in(group[_REASON]) else 0


def silver_columns(ctx: LakeContext) -> list[ColumnType]:
    """Return the columns of every silver table, without bookkeeping columns. I/O: reads the schemas."""
    return [
        ColumnType(table, column, kind)
        for table, columns in silver_tables(ctx.tables)
        for column, kind in columns.items()
        if column not in BOOKKEEPING
    ]


def silver_tables(tables: TableStore) -> Iterator[tuple[TableName, dict[str, str]]]:
    """Yield all silver tables, each with the types of its columns. Tables of other kinds are skipped."""
    described = ((table, tables.column_types(table)) for table in own_tables(tables, "silver"))
    return ((table, columns) for table, columns in described if has_bookkeeping(columns))


def docs_page(settings: Settings) -> Path | None:
    """Return the index page of the Data Docs; None: no page has been written yet."""
    page = Path(settings.quality.docs_dir).absolute() / "index.html"
    return page if page.is_file() else None


def quarantined_rows(ctx: LakeContext) -> dict[str, int]:
    """Return the number of quarantined rows by silver table. I/O: counts the rows of every quarantine."""
    return {
        str(table): ctx.tables.query(Query(quarantine_of(table)).aggregate(rows=("count", "_key")))[0]["rows"]
        for table in tables_with_quarantine(ctx.tables)
    }
