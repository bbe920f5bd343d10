"""Maintenance of all layers: compaction, VACUUM, purge of tombstones, retention of control rows."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from strandline.control.notifications import MAINTENANCE, Notifications
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.file_maintenance import (
    DeltaRsFiles,
    FileRetention,
    MaintainedByCatalog,
    SparkFiles,
    TableFiles,
    committed_at,
    log_files_of_a_day,
    set_retention,
)
from strandline.io.tables.table_store import own_tables
from strandline.io.telemetry.progress import PROGRESS
from strandline.jobs.context import JobContext
from strandline.jobs.erase.keep_erased import keep_erased
from strandline.jobs.lake_context import tables_here
from strandline.jobs.maintenance.bronze_compaction import compact_bronze
from strandline.jobs.maintenance.control_retention import Retention
from strandline.jobs.maintenance.tombstone_purge import PurgeResult, TombstonePurge
from strandline.jobs.parallel_map import parallel_map
from strandline.jobs.silver.history import tables_of
from strandline.jobs.silver.table_names import known_collections
from strandline.jobs.table_protocol import complete_protocol
from strandline.model.table_schemas import ERASURES, bronze_table
from strandline.model.tables import TableName
from strandline.silver.progress_index import ProgressIndex

_ON_TIME_HOURS: Final = 1
"""A silver table that is at most this far behind counts as up to date."""
_MAX_LATE_HOURS: Final = 30 * 24
"""Bronze keeps nothing for a silver table that is further behind: an abandoned table would keep its files for ever."""
_DAY: Final = 24
_AN_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True)
class MaintenanceResult:
    """Result of maintenance for one table."""

    table: str
    files_before: int
    files_after: int
    purged: int = 0
    """Number of deleted rows: tombstones, old rows of a control table, or events that bronze no longer needs."""
    note: str = ""
    """Reason why a step was skipped or files are kept for longer; empty: none."""


def run_maintain(ctx: JobContext) -> list[MaintenanceResult]:
    """Maintain every table of the lake that Strandline has made, ``maintenance.max_threads`` tables in parallel.

    Steps for each table: set the retention, purge tombstones, old control rows or old events of bronze, compact small
    files, then VACUUM files that no version of the last ``maintenance.retention_hours`` needs. Bronze keeps files and
    log for longer, up to 30 days, while a silver table has older commits of it to read. At last, erasures: see
    `keep_erased`.

    I/O: writes commits to every table, none for a step without effect.
    Writers may run concurrently: if one conflicts with a step, the writer wins and the step is skipped.

    Effects on failure:
        All other tables are maintained; then the first error is raised, as by `parallel_map`. Calling again is safe.
    """
    tables, bronze, purge = ctx.tables, bronze_table(ctx.settings.source.name), TombstonePurge.read(ctx)
    retention = Retention(tables, ctx.settings.maintenance, datetime.now(UTC))
    control = [name for name in own_tables(tables, "control") if not name.shadow_of]  # a rebuild removes it by itself
    names = ([bronze] if tables.exists(bronze) else []) + own_tables(tables, "silver", "gold") + control

    def maintain(table: TableName) -> MaintenanceResult:
        return _maintain(ctx, table, purge, retention, is_bronze=table == bronze)

    threads = ctx.settings.maintenance.max_threads
    with (
        PROGRESS.step("maintain", "tables", len(names)) as step,
        ThreadPoolExecutor(max_workers=threads, thread_name_prefix="strandline-maintain") as pool,
    ):
        results = parallel_map(pool, step.counting(maintain), names)
    results += [MaintenanceResult(str(ERASURES), 0, 0, note=note) for note in keep_erased(ctx)]
    if names:
        _note_end(ctx, len(names))
    return results


def count_removable_events(ctx: JobContext) -> list[MaintenanceResult]:
    """Count the events of bronze that `run_maintain` would remove. I/O: reads bronze. An empty list without bronze."""
    bronze = bronze_table(ctx.settings.source.name)
    if not ctx.tables.exists(bronze):
        return []
    files, counted = _files_of(ctx, bronze, is_bronze=True).count(), compact_bronze(ctx, bronze, dry_run=True)
    return [MaintenanceResult(str(bronze), files, files, counted.rows, counted.note)]


def _note_end(ctx: JobContext, tables: int) -> None:
    """I/O: one row in ``control.notifications``, so that an alert can tell that maintenance is overdue."""
    notifications = Notifications(ctx.tables, ctx.settings.source.name, frozenset({"table"}), 0)
    notifications.notify(MAINTENANCE, "COMPLETED", uuid.uuid4().hex, tables=tables)
    notifications.flush()


def _maintain(
    ctx: JobContext, table: TableName, purge: TombstonePurge | None, retention: Retention, *, is_bronze: bool
) -> MaintenanceResult:
    files = _files_of(ctx, table, is_bronze=is_bronze)
    late = _late_reader(ctx, table) if is_bronze else None
    configured, needed = _retention(ctx, table), _retention_hours_for(late)
    set_retention(files.tables, table, configured.at_least(needed))
    if table.layer == "silver":
        complete_protocol(ctx, table)
    before = files.count()
    purged = compact_bronze(ctx, table) if is_bronze else _purged(table, purge, retention)
    change, notes = _compact_and_vacuum(files)
    if late is not None and needed > configured.files:
        notes += [
            f"{late.table} has not read it for {int(late.hours)} hours: "
            f"its files and its log are kept for {needed} hours"
        ]
    notes += [purged.note] if purged.note else []
    return MaintenanceResult(str(table), before, before + change, purged.rows, "; ".join(notes))


def _compact_and_vacuum(files: TableFiles) -> tuple[int, list[str]]:
    """Return by how much the number of files changed, and the notes."""
    try:
        compacted = files.compact()
        files.vacuum()
    except MaintainedByCatalog:
        return 0, ["only the catalog may compact and remove files"]
    if compacted is None:
        return 0, ["a writer was at work: compact it another time"]
    removed, added = compacted
    return added - removed, []


def _files_of(ctx: JobContext, table: TableName, *, is_bronze: bool) -> TableFiles:
    """Return the files of a table. Where delta-rs writes bronze, every commit to bronze goes through it."""
    if is_bronze:
        store = ctx.for_capture().tables
        return DeltaRsFiles(store, table) if isinstance(store, DeltaRsTables) else SparkFiles(ctx.tables, table)
    direct = tables_here(ctx.settings)
    return SparkFiles(ctx.tables, table, direct if direct is not None and direct.can_write(table) else None)


def _purged(table: TableName, purge: TombstonePurge | None, retention: Retention) -> PurgeResult:
    if table.layer == "control":
        return PurgeResult(*retention.run(table))
    return purge.run(table) if purge is not None else PurgeResult()


def _retention(ctx: JobContext, table: TableName) -> FileRetention:
    """Return the configured retention of files and log.

    It is shorter for tables with many log files, and for gold and control tables, whose old versions nobody reads.
    """
    settings = ctx.settings.maintenance
    retention = FileRetention(settings.retention_hours, settings.log_retention_hours or settings.retention_hours)
    if table.layer in ("gold", "control"):
        return retention.at_most(settings.max_downtime_hours)
    files = log_files_of_a_day(ctx.tables.lake, table) if settings.log_max_files is not None else 0
    if settings.log_max_files is None or not files:
        return retention
    return retention.at_most(max(settings.max_downtime_hours, settings.log_max_files // files * _DAY))


@dataclass(frozen=True)
class _LateReader:
    """Silver table that has not read all of bronze."""

    table: TableName
    hours: float
    """Age of the oldest commit of bronze that the table has not read."""


def _retention_hours_for(late: _LateReader | None) -> int:
    """Return the hours for which bronze must keep files for a *late* reader; 0 without one.

    Two days more than its age, because the next maintenance may run only then.
    """
    return 0 if late is None else (int(late.hours) // _DAY + 3) * _DAY


def _late_reader(ctx: JobContext, bronze: TableName) -> _LateReader | None:
    """Return the silver table that is furthest behind.

    None: no table is late. A table that reads all of bronze anyway does not count.
    """
    progress_index, newest = ProgressIndex.read(ctx.tables, bronze), ctx.tables.version(bronze)
    progress: dict[TableName, int] = {}
    for namespace in known_collections(ctx, progress_index):
        for table in tables_of(ctx, namespace):
            progress[table.name] = progress_index.reached_version(namespace, table.progress())
    first_unread = {table: version + 1 for table, version in progress.items() if 0 <= version < newest}
    committed, now = committed_at(ctx.tables, bronze, set(first_unread.values())), datetime.now(UTC)
    readers = [
        _LateReader(table, (now - committed[version]) / _AN_HOUR)
        for table, version in first_unread.items()
        if version in committed
    ]
    late = [reader for reader in readers if _ON_TIME_HOURS < reader.hours <= _MAX_LATE_HOURS]
    return max(late, key=lambda reader: reader.hours, default=None)
