"""Status of source and silver: read from the tables, and from the source if one is configured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.bronze.offsets import Committed, newest_times
from pipelines.control.sources import State, state_of
from pipelines.errors import ResumePointLost, StrandlineError
from pipelines.jobs.context import JobContext
from pipelines.jobs.offsets.life_cycle import oplog_reach, required_offset
from pipelines.model.resume_token import RESET_OR_HEAL, ResumeToken
from pipelines.model.table_schemas import BOOKKEEPING, SCHEMA_CHANGES, bronze_table
from pipelines.model.tables import TableName
from pipelines.model.timestamps import utc
from pipelines.quality.quarantine import Quarantine, tables_with_quarantine


@dataclass(frozen=True)
class Offset:
    """Committed position of a source. Values from the source are None if it does not answer; *warning* says why."""

    source: str
    state: State
    batch: int
    lineage: int
    resume_token: str | None
    """None after a reset."""
    snapshot_id: str | None
    """Id of the running snapshot; None: no snapshot is running."""
    last_event_at: datetime | None
    """Cluster time of the newest event in bronze, UTC."""
    captured_at: datetime | None
    """Commit time of the newest batch, UTC."""
    table_version: int
    """Version of the bronze table."""
    position_at: datetime | None = None
    """Cluster time of the resume token, UTC."""
    age_seconds: int | None = None
    """Current time of the source minus *position_at*."""
    headroom_seconds: int | None = None
    """Time until the oplog drops the position, at the current write rate. None: it has never rolled over."""
    warning: str | None = None


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


def show_offset(ctx: JobContext) -> Offset:
    """Return the committed position of the source.

    I/O: reads bronze; asks the source, if one is configured, how long its oplog will hold the position.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    last, bronze = required_offset(ctx), bronze_table(ctx.settings.source.name)
    event_at, captured_at = newest_times(ctx.tables, bronze, last)
    offset = Offset(
        source=bronze.name,
        state=state_of(ctx.tables, bronze.name).state,
        batch=last.batch,
        lineage=last.lineage,
        resume_token=last.resume_token,
        snapshot_id=last.snapshot_id,
        last_event_at=event_at,
        captured_at=captured_at,
        table_version=ctx.tables.version(bronze),
    )
    if ctx.settings.source.uri is not None:
        return _compare_with_source(ctx, offset, last)
    return replace(offset, warning=_token_error(last))


def _token_error(last: Committed) -> str | None:
    try:
        _ = None if last.resume_token is None else ResumeToken.parse(last.resume_token)
    except ResumePointLost as lost:
        return str(lost)
    return None


def _compare_with_source(ctx: JobContext, offset: Offset, last: Committed) -> Offset:
    try:
        reach = oplog_reach(ctx, last)
    except StrandlineError as error:
        return replace(offset, warning=str(error))
    if reach is None:
        return offset
    warning = None
    if reach.why_lost is not None:
        warning = f"{reach.why_lost} → {RESET_OR_HEAL}"
    elif (
        reach.headroom_seconds is not None
        and reach.headroom_seconds < ctx.settings.capture.headroom_warning_minutes * 60
    ):
        minutes = reach.headroom_seconds // 60
        warning = (
            f"the source forgets this position in about {minutes} minutes → "
            "enlarge the oplog, or let the capture catch up"
        )
    position_at = None if reach.position is None else datetime.fromtimestamp(reach.position, UTC)
    return replace(
        offset,
        position_at=position_at,
        age_seconds=reach.age_seconds,
        headroom_seconds=reach.headroom_seconds,
        warning=warning,
    )


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


def schema_history(ctx: JobContext, table: str | None = None, *, limit: int) -> list[dict[str, Any]]:
    """Return the newest *limit* schema changes, newest first. I/O: reads ``control.schema_changes``.

    Args:
        ctx: The pipeline.
        table: Such as ``silver.orders``; None: all tables.
        limit: Maximum number of rows.
    """
    if not ctx.tables.exists(SCHEMA_CHANGES):
        return []
    rows = ctx.tables.read(SCHEMA_CHANGES)
    rows = rows if table is None else rows.where(F.col("table") == table)
    return [
        row.asDict() | {"at": utc(row["at"])}
        for row in rows.orderBy(F.col("at").desc(), "table", "path").limit(limit).collect()
    ]


def _silver_tables(ctx: JobContext) -> Iterator[tuple[TableName, DataFrame]]:
    """Yield all silver tables. Foreign tables in the same schema lack the bookkeeping columns and are skipped."""
    read = ((table, ctx.tables.read(table)) for table in ctx.tables.names("silver"))
    required = set(BOOKKEEPING) - {"_inexact_because"}  # tables of an older release lack it until the next silver run
    return ((table, rows) for table, rows in read if required <= set(rows.columns))


def docs_page(ctx: JobContext) -> Path | None:
    """Return the index page of the Data Docs; None: no page has been written yet."""
    page = Path(ctx.settings.quality.docs_dir).absolute() / "index.html"
    return page if page.is_file() else None


def quarantined_rows(ctx: JobContext) -> dict[str, int]:
    """Return the number of quarantined rows by silver table. I/O: counts the rows of every quarantine."""
    return {str(name): Quarantine(ctx.tables, name).count() for name in tables_with_quarantine(ctx.tables)}
