"""Upkeep of bronze, silver and control. Rows go only where nothing can need them: tombstones, and old rows of control tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pipelines.io.file_maintenance import FileRetention, committed_at, compact, set_retention, vacuum
from pipelines.jobs.context import JobContext
from pipelines.jobs.maintenance.control_retention import Retention
from pipelines.jobs.maintenance.tombstone_purge import Purge, Purged
from pipelines.jobs.migration import migrate
from pipelines.jobs.parallel_map import parallel_map
from pipelines.jobs.silver.history import known_collections, tables_of
from pipelines.model.table_schemas import bronze_table
from pipelines.model.tables import TableName
from pipelines.silver.progress_index import ProgressIndex

_ON_TIME_HOURS: Final = 1
"""A silver table that is no further behind does not need what the settings keep for late readers."""
_LOST_HOURS: Final = 30 * 24
"""Nothing is kept for a silver table that is further behind, or bronze would keep files and log for ever where nobody merges it."""
_DAY: Final = 24
_AN_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True)
class Maintained:
    """What was done to one table."""

    table: str
    files_before: int
    files_after: int
    purged: int = 0
    """Rows that were removed: tombstones, or old rows of a control table."""
    note: str = ""
    """Why something was left out, or is kept for longer."""


def run_maintain(ctx: JobContext) -> list[Maintained]:
    """I/O: as `migrate`; then, for each table, one commit with the retention where it was another, those of `Purge.run` and
    `Retention.run`, one that compacts small files, and the removal of files that no version of the last
    ``maintenance.retention_hours`` needs; ``maintenance.max_threads`` tables at once.

    Bronze keeps its files and its log for longer while a silver table has not read commits that are older than that, up to 30 days. Writers
    may run beside: where one is at work on the same files, it goes before.

    Effects on failure:
        As `parallel_map`: all other tables are looked after.
    """
    migrate(ctx, everything=True)
    tables, bronze, purge = ctx.tables, bronze_table(ctx.settings.source.name), Purge.of(ctx)
    retention = Retention(tables, ctx.settings.maintenance, datetime.now(UTC))
    names = ([bronze] if tables.exists(bronze) else []) + tables.names("silver") + tables.names("control")
    with ThreadPoolExecutor(
        max_workers=ctx.settings.maintenance.max_threads, thread_name_prefix="strandline-maintain"
    ) as pool:
        return parallel_map(
            pool, lambda table: _maintain(ctx, table, purge, retention, is_bronze=table == bronze), names
        )


def _maintain(
    ctx: JobContext, table: TableName, purge: Purge | None, retention: Retention, *, is_bronze: bool
) -> Maintained:
    tables = ctx.tables
    detail = tables.detail(table)
    late = _late_reader(ctx, table) if is_bronze else None
    kept, needed = _kept(ctx, table), _kept_for(late)
    set_retention(tables, table, kept.at_least(needed), detail["properties"])
    before = int(detail["numFiles"])
    purged = _purged(table, purge, retention)
    compacted = compact(tables, table)
    vacuum(tables, table)
    notes = ["a writer was at work: compact it another time"] if compacted is None else []
    if late is not None and needed > kept.files:
        notes += [
            f"{late.table} has not read it for {int(late.hours)} hours: its files and its log are kept for {needed} hours"
        ]
    notes += [purged.note] if purged.note else []
    removed, added = compacted or (0, 0)
    return Maintained(str(table), before, before - removed + added, purged.rows, "; ".join(notes))


def _purged(table: TableName, purge: Purge | None, retention: Retention) -> Purged:
    if table.layer == "control":
        return Purged(*retention.run(table))
    return purge.run(table) if purge is not None else Purged()


def _kept(ctx: JobContext, table: TableName) -> FileRetention:
    """As long as the settings say; for fewer days where the log has many files, and where nobody reads old versions: of control tables."""
    settings = ctx.settings.maintenance
    kept = FileRetention(settings.retention_hours, settings.log_retention_hours or settings.retention_hours)
    if table.layer == "control":
        return kept.at_most(settings.max_downtime_hours)
    files = ctx.tables.log_files_of_a_day(table) if settings.log_max_files is not None else 0
    if settings.log_max_files is None or not files:
        return kept
    return kept.at_most(max(settings.max_downtime_hours, settings.log_max_files // files * _DAY))


@dataclass(frozen=True)
class _Reader:
    """A silver table, and the age of the oldest commit of bronze that it has not read."""

    table: TableName
    hours: float


def _kept_for(late: _Reader | None) -> int:
    """Hours for which bronze must keep what a *late* reader needs: it may be maintained only two days from now."""
    return 0 if late is None else (int(late.hours) // _DAY + 3) * _DAY


def _late_reader(ctx: JobContext, bronze: TableName) -> _Reader | None:
    """The silver table that is behind most. None: none is, or so far that it reads all of bronze, as one that has read nothing does."""
    progress_index, newest = ProgressIndex.read(ctx.tables, ctx.tables.id(bronze)), ctx.tables.version(bronze)
    progress: dict[TableName, int] = {}
    for namespace in known_collections(ctx, progress_index):
        for each in tables_of(ctx, namespace):
            progress[each.name] = progress_index.reached_version(namespace, each.progress())
    first_unread = {table: version + 1 for table, version in progress.items() if 0 <= version < newest}
    committed, now = committed_at(ctx.tables, bronze, set(first_unread.values())), datetime.now(UTC)
    readers = [
        _Reader(table, (now - committed[version]) / _AN_HOUR)
        for table, version in first_unread.items()
        if version in committed
    ]
    late = [reader for reader in readers if _ON_TIME_HOURS < reader.hours <= _LOST_HOURS]
    return max(late, key=lambda reader: reader.hours, default=None)
