"""How far, how fresh: read from the tables alone, and, where a source is configured, compared with its present."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import functions as F

from pipelines.bronze.offsets import Committed, committed
from pipelines.errors import ConfigurationError
from pipelines.jobs.capture import connection_options
from pipelines.jobs.context import JobContext
from pipelines.jobs.selection import inspect_selection, selection_of
from pipelines.model.columns import BOOKKEEPING, bronze_table
from pipelines.model.tables import TableName
from pipelines.quality.quarantine import Quarantine, tables_with_quarantine
from pipelines.source.client import inspect, open_client, operation_time


@dataclass(frozen=True)
class Offset:
    """The committed position of a source."""

    source: str
    batch: int
    resume_token: str
    snapshot_id: str | None
    last_event_at: datetime | None
    """Cluster time of the newest event in bronze, UTC."""
    captured_at: datetime | None
    table_version: int


@dataclass(frozen=True)
class TableStatus:
    """One silver table."""

    table: TableName
    live: int
    tombstones: int
    rescued: int
    waiting: int
    """Keys whose newest updates wait for a document that they can be folded onto."""
    newest_change: datetime | None


def show_offset(ctx: JobContext) -> Offset:
    """I/O: reads bronze.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    bronze = bronze_table(ctx.settings.source.name)
    last = committed(ctx.tables, bronze) if ctx.tables.exists(bronze) else None
    if last is None:
        raise ConfigurationError(f"source {ctx.settings.source.name} has no offset yet", next_step="strandline capture --once")
    return _offset(ctx, bronze, last)


def _offset(ctx: JobContext, bronze: TableName, last: Committed) -> Offset:
    newest = ctx.tables.read(bronze).where(F.col("batch").isNotNull()).agg(F.max("cluster_time"), F.max("captured_at")).first()
    assert newest is not None  # an aggregate has one row
    return Offset(
        bronze.name, last.batch, last.resume_token, last.snapshot_id, _utc(newest[0]), _utc(newest[1]), ctx.tables.version(bronze)
    )


def _utc(moment: datetime | None) -> datetime | None:
    """Spark hands timestamps out in the process's zone, without saying so."""
    return None if moment is None else moment.astimezone(UTC)


def silver_status(ctx: JobContext) -> list[TableStatus]:
    """I/O: one small aggregate for each silver table."""
    found = []
    for table in ctx.tables.names("silver"):
        rows = ctx.tables.read(table)
        if not set(BOOKKEEPING) <= set(rows.columns):
            continue  # somebody else's table in the same schema
        counts = rows.agg(
            F.count_if(~F.col("_deleted")),
            F.count_if(F.col("_deleted")),
            F.count_if(F.col("_rescued").isNotNull()),
            F.count_if(F.col("_pending").isNotNull()),
            F.max("_cluster_time"),
        ).first()
        assert counts is not None  # an aggregate has one row
        found.append(TableStatus(table, counts[0], counts[1], counts[2], counts[3], _utc(counts[4])))
    return found


def docs_page(ctx: JobContext) -> Path | None:
    """The index of the Data Docs; None where no page has been written yet."""
    page = Path(ctx.settings.quality.docs_dir).absolute() / "index.html"
    return page if page.is_file() else None


def held_rows(ctx: JobContext) -> dict[str, int]:
    """I/O: rows in quarantine, for each silver table that has one."""
    return {str(name): Quarantine(ctx.tables, name).count() for name in tables_with_quarantine(ctx.tables)}


def diagnose(ctx: JobContext) -> dict[str, str]:
    """I/O: asks the source who it is, and the lake what it holds. Raises the first thing that would stop a capture."""
    options = connection_options(ctx.settings)
    with closing(open_client(options)) as client:
        deployment = inspect(client)
        selection = selection_of(ctx.settings.capture)
        selected = inspect_selection(selection, client, deployment)
        seconds, _ = operation_time(client)
    bronze = bronze_table(ctx.settings.source.name)
    return {
        "MongoDB": f"{deployment.version}, {'sharded cluster' if deployment.sharded else f'replica set {deployment.set_name}'}",
        "operation time": datetime.fromtimestamp(seconds, UTC).isoformat(),
        "expanded events": "yes" if deployment.shows_expanded_events else "no (needs 6.0): no collection UUIDs",
        "captured": f"{len(selected.collections)} collections" + "".join(f"; {warning}" for warning in selected.warnings),
        "images": "recorded by every captured collection" if selection.images.recorded else "not asked for (capture.mode)",
        "lake": ctx.tables.lake.path(bronze) if ctx.tables.lake.by_path else ctx.tables.lake.sql(bronze),
        "bronze": "there" if ctx.tables.exists(bronze) else "not there yet",
    }
