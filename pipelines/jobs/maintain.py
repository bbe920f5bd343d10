"""Upkeep of bronze, silver and control. Rows go only where nothing can need them: tombstones, and old rows of control tables."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pipelines.io.upkeep import Kept, committed_at, compact, keep_for, vacuum
from pipelines.jobs.context import JobContext
from pipelines.jobs.migration import migrate
from pipelines.jobs.purge import Purge, Purged
from pipelines.jobs.retention import Retention
from pipelines.jobs.side_by_side import on_each
from pipelines.jobs.silver_history import known_collections, tables_of
from pipelines.model.columns import bronze_table
from pipelines.model.tables import TableName
from pipelines.silver.ledger import Ledger

_ON_TIME_HOURS: Final = 1
"""A silver table that is no further behind does not need what the settings keep for late readers."""


@dataclass(frozen=True)
class Maintained:
    """What was done to one table."""

    table: str
    files_before: int
    files_after: int
    vacuumed: bool
    purged: int = 0
    """Rows that were removed: tombstones, or old rows of a control table."""
    note: str = ""
    """Why something was left out."""


def run_maintain(ctx: JobContext) -> list[Maintained]:
    """I/O: as `migrate`; then, for each table, one commit with the retention where it was another, those of `Purge.run` and
    `Retention.run`, one that compacts small files, and the removal of files that no version of the last
    ``maintenance.retention_hours`` needs; ``maintenance.max_threads`` tables at once.

    Bronze keeps its files and its log while a silver table has not read commits that are older than that. Writers may run beside: where one
    is at work on the same files, it goes before.

    Effects on failure:
        As `on_each`: all other tables are looked after.
    """
    migrate(ctx, everything=True)
    tables, bronze, purge = ctx.tables, bronze_table(ctx.settings.source.name), Purge.of(ctx)
    retention = Retention(tables, ctx.settings.maintenance, datetime.now(UTC))
    names = ([bronze] if tables.exists(bronze) else []) + tables.names("silver") + tables.names("control")
    with ThreadPoolExecutor(max_workers=ctx.settings.maintenance.max_threads, thread_name_prefix="strandline-maintain") as pool:
        return on_each(pool, lambda table: _maintain(ctx, table, purge, retention, is_bronze=table == bronze), names)


def _maintain(ctx: JobContext, table: TableName, purge: Purge | None, retention: Retention, *, is_bronze: bool) -> Maintained:
    tables, hours = ctx.tables, ctx.settings.maintenance.retention_hours
    detail = tables.detail(table)
    reader = _late_reader(ctx, table) if is_bronze else None
    keep_for(tables, table, _kept(ctx, table, reader), detail["properties"])
    before = int(detail["numFiles"])
    purged = _purged(table, purge, retention)
    compacted = compact(tables, table)
    waits = reader is not None and reader.hours > hours
    if not waits:
        vacuum(tables, table)
    notes = ["a writer was at work: compact it another time"] if compacted is None else []
    notes += [f"{reader.table} has not read it for more than {hours} hours: no file is removed"] if waits and reader is not None else []
    notes += [purged.note] if purged.note else []
    removed, added = compacted or (0, 0)
    return Maintained(str(table), before, before - removed + added, not waits, purged.rows, "; ".join(notes))


def _purged(table: TableName, purge: Purge | None, retention: Retention) -> Purged:
    if table.layer == "control":
        return Purged(*retention.run(table))
    return purge.run(table) if purge is not None else Purged()


def _kept(ctx: JobContext, table: TableName, reader: _Reader | None) -> Kept:
    """As long as the settings say; for fewer days where the log has many files, unless a *reader* is late; longer for one that is later."""
    settings = ctx.settings.maintenance
    kept = Kept(settings.retention_hours, settings.log_retention_hours or settings.retention_hours)
    if reader is not None and reader.hours > _ON_TIME_HOURS:
        return kept if math.isinf(reader.hours) else kept.at_least((int(reader.hours) // 24 + 3) * 24)
    files = ctx.tables.log_files_of_a_day(table) if settings.log_max_files is not None else 0
    if settings.log_max_files is None or not files:
        return kept
    return kept.at_most(max(settings.max_downtime_hours, settings.log_max_files // files * 24))


@dataclass(frozen=True)
class _Reader:
    """A silver table, and the age of the oldest commit of bronze that it has not read, in hours; inf: the log no longer tells."""

    table: TableName
    hours: float


def _late_reader(ctx: JobContext, bronze: TableName) -> _Reader | None:
    """The silver table that is behind most. None: none is; a table that has read nothing reads the newest version."""
    ledger, newest = Ledger.read(ctx.tables, ctx.tables.id(bronze)), ctx.tables.version(bronze)
    progress: dict[TableName, int] = {}
    for namespace in known_collections(ctx, ledger):
        for each in tables_of(ctx, namespace):
            progress[each.name] = ledger.reached(namespace, each.progress())
    behind = {table: version for table, version in progress.items() if 0 <= version < newest}
    if not behind:
        return None
    latest = min(behind, key=lambda table: behind[table])
    due = committed_at(ctx.tables, bronze, behind[latest] + 1)
    return _Reader(latest, math.inf if due is None else (datetime.now(UTC) - due) / timedelta(hours=1))
