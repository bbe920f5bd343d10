"""Upkeep of bronze, silver and control. The only rows that go are tombstones that nothing can need any more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pipelines.io.upkeep import committed_at, compact, keep_for, vacuum
from pipelines.jobs.context import JobContext
from pipelines.jobs.purge import Purge, Purged
from pipelines.jobs.side_by_side import on_each
from pipelines.jobs.silver_history import known_collections, tables_of
from pipelines.model.columns import bronze_table
from pipelines.model.tables import TableName
from pipelines.silver.ledger import Ledger


@dataclass(frozen=True)
class Maintained:
    """What was done to one table."""

    table: str
    files_before: int
    files_after: int
    vacuumed: bool
    purged: int = 0
    """Tombstones that were removed."""
    note: str = ""
    """Why something was left out."""


def run_maintain(ctx: JobContext) -> list[Maintained]:
    """I/O: for each table, one commit with the retention where it was another, those of `Purge.run`, one that compacts small files, and the
    removal of files that no version of the last ``maintenance.retention_hours`` needs; ``maintenance.max_threads`` tables at once.

    Bronze keeps all its files while a silver table has not read commits that are older than that. Writers may run beside: where one is at
    work on the same files, it goes before.

    Effects on failure:
        As `on_each`: all other tables are looked after.
    """
    tables, bronze, purge = ctx.tables, bronze_table(ctx.settings.source.name), Purge.of(ctx)
    names = ([bronze] if tables.exists(bronze) else []) + tables.names("silver") + tables.names("control")
    with ThreadPoolExecutor(max_workers=ctx.settings.maintenance.max_threads, thread_name_prefix="strandline-maintain") as pool:
        return on_each(pool, lambda table: _maintain(ctx, table, purge, is_bronze=table == bronze), names)


def _maintain(ctx: JobContext, table: TableName, purge: Purge | None, *, is_bronze: bool) -> Maintained:
    tables, hours = ctx.tables, ctx.settings.maintenance.retention_hours
    detail = tables.detail(table)
    keep_for(tables, table, hours, detail["properties"])
    before = int(detail["numFiles"])
    purged = purge.run(table) if purge is not None else Purged()
    compacted = compact(tables, table)
    reader = _late_reader(ctx, table, hours) if is_bronze else None
    if reader is None:
        vacuum(tables, table)
    notes = ["a writer was at work: compact it another time"] if compacted is None else []
    notes += [f"{reader} has not read it for more than {hours} hours: no file is removed"] if reader is not None else []
    notes += [purged.note] if purged.note else []
    removed, added = compacted or (0, 0)
    return Maintained(str(table), before, before - removed + added, reader is None, purged.rows, "; ".join(notes))


def _late_reader(ctx: JobContext, bronze: TableName, hours: int) -> TableName | None:
    """A silver table whose next commit of bronze is older than the retention; a table that has read nothing reads the newest version."""
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
    return latest if due is None or due < datetime.now(UTC) - timedelta(hours=hours) else None
