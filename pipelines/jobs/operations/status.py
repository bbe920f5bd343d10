"""Status of the silver tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.jobs.context import JobContext
from pipelines.model.table_schemas import BOOKKEEPING
from pipelines.model.tables import TableName
from pipelines.model.timestamps import utc
from pipelines.quality.quarantine import Quarantine, tables_with_quarantine
from pipelines.settings.configuration import Settings


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


def silver_status(ctx: JobContext) -> list[TableStatus]:
    """Return the row counts of every silver table. I/O: runs one small aggregate per table."""
    found = []
    for table, rows in _silver_tables(ctx):
        counts = rows.agg(
            F.count_if(~F.col("_deleted")),
            F.count_if(F.col("_deleted")),
            F.count_if(F.col("_rescued").isNotNull()),
            F.count_if(~F.col("_deleted") & F.exists("_pending", lambda entry: entry["patch"].isNotNull())),
            F.count_if(~F.col("_deleted") & F.exists("_pending", lambda entry: entry["patch"].isNull())),
            F.max("_cluster_time"),
        ).first()
        assert counts is not None  # an aggregate has one row
        found.append(TableStatus(table, counts[0], counts[1], counts[2], counts[3], counts[4], utc(counts[5])))
    return found


def silver_columns(ctx: JobContext) -> list[ColumnType]:
    """Return the columns of every silver table, without bookkeeping columns. I/O: reads the schemas."""
    return [
        ColumnType(table, column, kind)
        for table, rows in _silver_tables(ctx)
        for column, kind in rows.dtypes
        if column not in BOOKKEEPING
    ]


def _silver_tables(ctx: JobContext) -> Iterator[tuple[TableName, DataFrame]]:
    """Yield all silver tables. Foreign tables in the same schema lack the bookkeeping columns and are skipped."""
    read = ((table, ctx.tables.read(table)) for table in ctx.tables.names("silver"))
    required = set(BOOKKEEPING) - {"_inexact_because"}  # tables of an older release lack it until the next silver run
    return ((table, rows) for table, rows in read if required <= set(rows.columns))


def docs_page(settings: Settings) -> Path | None:
    """Return the index page of the Data Docs; None: no page has been written yet."""
    page = Path(settings.quality.docs_dir).absolute() / "index.html"
    return page if page.is_file() else None


def quarantined_rows(ctx: JobContext) -> dict[str, int]:
    """Return the number of quarantined rows by silver table. I/O: counts the rows of every quarantine."""
    return {str(name): Quarantine(ctx.tables, name).count() for name in tables_with_quarantine(ctx.tables)}
