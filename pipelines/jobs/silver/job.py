"""Silver: ``bronze.<source>`` → one typed table for each collection, MERGEd by document key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pipelines.control.cuts import open_cuts
from pipelines.errors import ContractError
from pipelines.io.conflicts import retrying
from pipelines.io.ddl import schema_of
from pipelines.io.metrics import SILVER_ROWS, SILVER_SECONDS
from pipelines.io.versions import with_fresh_versions
from pipelines.jobs.context import JobContext
from pipelines.jobs.migration import migrate
from pipelines.jobs.parallel_map import parallel_map
from pipelines.jobs.selection import selection_of
from pipelines.jobs.silver.bronze_range import BronzeRange, updates_of
from pipelines.jobs.silver.collection import CollectionRun, SilverResult
from pipelines.jobs.silver.cuts import only_maintained, publish_cut
from pipelines.jobs.silver.history import HistoryRun, tables_of
from pipelines.jobs.silver.table_names import conflicts
from pipelines.model.namespaces import Namespace
from pipelines.model.table_schemas import SCHEMA_CHANGES, SCHEMA_CHANGES_DDL, bronze_table
from pipelines.silver.bronze_increment import BronzeIncrement, namespaces_that_ended
from pipelines.silver.progress_index import ProgressIndex
from pipelines.silver.sweep import snapshot_certificates
from pipelines.silver.typed_table import Progress


@dataclass
class SilverMemory:
    """Progress of the silver runs of one process since the ledger was stored: heartbeats are not worth a commit."""

    seen: Progress | None = None
    """As the last run over all collections found bronze."""
    _stored: ProgressIndex | None = None
    _progress_index: ProgressIndex | None = None

    def progress_index(self, stored: ProgressIndex) -> ProgressIndex:
        """The ledger of the last run, unless another process has stored one since."""
        return self._progress_index if self._progress_index is not None and self._stored == stored else stored

    def keep(self, stored: ProgressIndex, progress_index: ProgressIndex, seen: Progress) -> None:
        """Remember *ledger*, which is ahead of the *stored* one."""
        self._stored, self._progress_index, self.seen = stored, progress_index, seen


def run_silver(
    ctx: JobContext,
    *,
    collections: Sequence[str] = (),
    report: Callable[[SilverResult], None] = lambda _: None,
    memory: SilverMemory | None = None,
) -> list[SilverResult]:
    """I/O: reads what is new in bronze; MERGEs it, some tables at once; a collection without news costs nothing, nor does an idle source.

    Args:
        collections: ``db.collection`` names; empty: all.
        memory: The same one in each run of a process. Nothing is done while bronze stays at the version that it has seen.

    Effects on failure:
        All other tables are complete, but no cut is published; the failed one repeats its MERGE. Calling again is safe.
    """
    return with_fresh_versions(lambda: _run_silver(ctx, collections, report, memory or SilverMemory()))


def _run_silver(
    ctx: JobContext, collections: Sequence[str], report: Callable[[SilverResult], None], memory: SilverMemory
) -> list[SilverResult]:
    """The same, up to the version that is the newest one now."""
    bronze = bronze_table(ctx.settings.source.name)
    if not ctx.tables.exists(bronze):
        raise ContractError(f"there is no {bronze} yet", next_step="strandline capture --once")
    if memory.seen is None:
        migrate(ctx)
    through = Progress(ctx.tables.id(bronze), ctx.tables.version(bronze))
    if memory.seen == through:
        return []
    stored = ProgressIndex.read(ctx.tables, through.bronze_id)
    progress_index = memory.progress_index(stored)
    increment = BronzeIncrement.read(ctx.tables, bronze, progress_index.complete_through, through.version)
    moved = increment.current_names(progress_index.current_names)

    # A small MERGE is a dozen short Spark jobs with pauses between them: several tables at once fill the pauses.
    with ThreadPoolExecutor(
        max_workers=ctx.settings.silver.max_threads, thread_name_prefix="strandline-silver"
    ) as pool:
        namespaces, kept_up = _namespaces_with_news(ctx, progress_index, increment, moved, collections, pool)
        if namespaces:
            ctx.tables.create(SCHEMA_CHANGES, schema_of(SCHEMA_CHANGES_DDL))  # before its writers start side by side
        at_once = min(ctx.settings.silver.max_threads, len(namespaces))
        of_bronze = BronzeRange(ctx.tables, bronze, progress_index, through, increment, updates_of(ctx), at_once)
        held_back = conflicts(ctx, namespaces)

        def run_one(namespace: Namespace) -> SilverResult:
            if namespace in held_back:  # the two must not even race for the table
                raise held_back[namespace]
            return _run_one(ctx, namespace, of_bronze, report)

        results = parallel_map(pool, run_one, namespaces)
    if not collections and progress_index.complete_through < through.version:
        inexact_reasons = {str(result.table): result.inexact_reasons for result in results}
        advanced = progress_index.after_run(
            namespaces, through.version, moved, kept_up | _versions(ctx, namespaces), inexact_reasons
        )
        _note(
            ctx, _Noted(stored, progress_index, _with_past(ctx, advanced, progress_index, increment), increment), memory
        )
    return results


@dataclass(frozen=True)
class _Noted:
    """Ledgers of one run over all collections: as stored, as the run began, as it ended; and what it read."""

    stored: ProgressIndex
    before: ProgressIndex
    now: ProgressIndex
    increment: BronzeIncrement


def _note(ctx: JobContext, run: _Noted, memory: SilverMemory) -> None:
    """I/O: publishes a cut and stores the ledger, where there is anything to tell."""
    seen, now = Progress(run.now.bronze_id, run.now.complete_through), datetime.now(UTC)
    # Another run that has ended meanwhile has said it all, and further: its tables are no longer at what this one read.
    if ProgressIndex.read(ctx.tables, seen.bronze_id) != run.stored:
        return
    progress_index, stored = publish_cut(ctx, run.before, run.now, run.increment), run.stored
    if not run.increment.is_empty or progress_index.is_worth_a_commit(stored, now):
        open_cuts(ctx.tables)
        progress_index = stored = progress_index.store(ctx.tables, now)
    memory.keep(stored, progress_index, seen)


def _with_past(
    ctx: JobContext, progress_index: ProgressIndex, before: ProgressIndex, increment: BronzeIncrement
) -> ProgressIndex:
    """*ledger* with the names that ended and the gaps that were healed. Where *before* does not know them, all of bronze is read, once."""
    if before.ended_names is None or before.healed_through is None:
        bronze = bronze_table(ctx.settings.source.name)
        healed = [
            snapshot.heals_up_to
            for snapshot in snapshot_certificates(ctx.tables, bronze)
            if snapshot.heals_up_to is not None
        ]
        progress_index = progress_index.with_events(namespaces_that_ended(ctx.tables, bronze), healed)
    return progress_index.with_events(increment.ended_names, increment.healed_positions)


def _run_one(
    ctx: JobContext, namespace: Namespace, of_bronze: BronzeRange, report: Callable[[SilverResult], None]
) -> SilverResult:
    for attempt in retrying():  # another silver run may be at the same table: what it has committed is read anew
        with attempt:
            result = CollectionRun(ctx, namespace, of_bronze).run()
            if ctx.settings.silver.keeps_history(str(namespace)):
                result = replace(result, versions=HistoryRun(ctx, namespace, of_bronze).run())
    _count(result)
    report(result)
    return result


def _count(result: SilverResult) -> None:
    name = str(result.table)
    for done, rows in (("inserted", result.inserted), ("updated", result.updated), ("versions", result.versions)):
        SILVER_ROWS.labels(name, done).inc(rows)
    SILVER_SECONDS.labels(name).observe(result.seconds)


def _namespaces_with_news(
    ctx: JobContext,
    progress_index: ProgressIndex,
    increment: BronzeIncrement,
    moved: Mapping[str, Namespace],
    wanted: Sequence[str],
    pool: Executor,
) -> tuple[list[Namespace], dict[str, int]]:
    """Collections with changes that their table does not hold yet: those with *news*, and those whose table was dropped or restored to
    an older version. And the versions of idle tables that hold the same in other files: the older ones cannot be read for long."""
    found = increment.affected_namespaces(moved, progress_index.own_versions, selection_of(ctx.settings.capture).admits)
    idle = [namespace for namespace in progress_index.own_versions if namespace not in found]
    looks = dict(zip(idle, pool.map(lambda namespace: _look(ctx, progress_index, namespace), idle), strict=True))
    found |= {namespace for namespace, look in looks.items() if look.is_behind}
    kept_up = {table: version for look in looks.values() for table, version in look.kept_up.items()}
    return sorted(namespace for namespace in found if not wanted or str(namespace) in wanted), kept_up


@dataclass(frozen=True)
class _Look:
    """What became of an idle collection's tables since the last run."""

    is_behind: bool = False
    """One of them knows less than it once did."""
    kept_up: Mapping[str, int] = field(default_factory=dict)


def _look(ctx: JobContext, progress_index: ProgressIndex, namespace: Namespace) -> _Look:
    tables, known = tables_of(ctx, namespace), progress_index.versions
    there = {each.name: ctx.tables.version(each.name) for each in tables if ctx.tables.exists(each.name)}
    moved_on = {name: version for name, version in there.items() if version != known.get(str(name))}
    if len(there) == len(tables) and not moved_on:
        return _Look()
    if min(progress_index.own_progress(each.progress()) for each in tables) < progress_index.own_versions[namespace]:
        return _Look(is_behind=True)
    kept_up = {name: at for name, at in moved_on.items() if only_maintained(ctx.tables, name, known.get(str(name)), at)}
    return _Look(kept_up={str(name): at for name, at in kept_up.items()})


def _versions(ctx: JobContext, namespaces: Iterable[Namespace]) -> dict[str, int]:
    return {
        str(each.name): ctx.tables.version(each.name) for namespace in namespaces for each in tables_of(ctx, namespace)
    }
