"""Silver: ``bronze.<source>`` → one typed table for each collection, MERGEd by document key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pipelines.control.cuts import open_cuts
from pipelines.errors import ContractError
from pipelines.io.conflicts import retrying
from pipelines.io.metrics import SILVER_ROWS, SILVER_SECONDS
from pipelines.io.tables import schema_of
from pipelines.io.versions import with_fresh_versions
from pipelines.jobs.context import JobContext
from pipelines.jobs.cuts import only_maintained, publish_cut
from pipelines.jobs.migration import migrate
from pipelines.jobs.selection import selection_of
from pipelines.jobs.side_by_side import on_each
from pipelines.jobs.silver_collection import BronzeRange, CollectionRun, SilverResult, updates_of
from pipelines.jobs.silver_history import HistoryRun, tables_of
from pipelines.jobs.silver_tables import conflicts
from pipelines.model.columns import SCHEMA_CHANGES, SCHEMA_CHANGES_DDL, bronze_table
from pipelines.model.namespaces import Namespace
from pipelines.silver.ledger import Ledger
from pipelines.silver.news import News, namespaces_that_ended
from pipelines.silver.sweep import completed_snapshots
from pipelines.silver.typed_table import Progress


@dataclass
class SilverMemory:
    """Progress of the silver runs of one process since the ledger was stored: heartbeats are not worth a commit."""

    seen: Progress | None = None
    """As the last run over all collections found bronze."""
    _stored: Ledger | None = None
    _ledger: Ledger | None = None

    def ledger(self, stored: Ledger) -> Ledger:
        """The ledger of the last run, unless another process has stored one since."""
        return self._ledger if self._ledger is not None and self._stored == stored else stored

    def keep(self, stored: Ledger, ledger: Ledger, seen: Progress) -> None:
        """Remember *ledger*, which is ahead of the *stored* one."""
        self._stored, self._ledger, self.seen = stored, ledger, seen


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
    stored = Ledger.read(ctx.tables, through.bronze_id)
    ledger = memory.ledger(stored)
    news = News.read(ctx.tables, bronze, ledger.complete_through, through.version)
    moved = news.moved(ledger.moved)

    # A small MERGE is a dozen short Spark jobs with pauses between them: several tables at once fill the pauses.
    with ThreadPoolExecutor(max_workers=ctx.settings.silver.max_threads, thread_name_prefix="strandline-silver") as pool:
        namespaces, kept_up = _namespaces_with_news(ctx, ledger, news, moved, collections, pool)
        if namespaces:
            ctx.tables.create(SCHEMA_CHANGES, schema_of(SCHEMA_CHANGES_DDL))  # before its writers start side by side
        at_once = min(ctx.settings.silver.max_threads, len(namespaces))
        of_bronze = BronzeRange(ctx.tables, bronze, ledger, through, news, updates_of(ctx), at_once)
        held_back = conflicts(ctx, namespaces)

        def run_one(namespace: Namespace) -> SilverResult:
            if namespace in held_back:  # the two must not even race for the table
                raise held_back[namespace]
            return _run_one(ctx, namespace, of_bronze, report)

        results = on_each(pool, run_one, namespaces)
    if not collections and ledger.complete_through < through.version:
        doubts = {str(result.table): result.doubts for result in results}
        advanced = ledger.advanced(namespaces, through.version, moved, kept_up | _versions(ctx, namespaces), doubts)
        _note(ctx, _Noted(stored, ledger, _with_past(ctx, advanced, ledger, news), news), memory)
    return results


@dataclass(frozen=True)
class _Noted:
    """Ledgers of one run over all collections: as stored, as the run began, as it ended; and what it read."""

    stored: Ledger
    before: Ledger
    now: Ledger
    news: News


def _note(ctx: JobContext, run: _Noted, memory: SilverMemory) -> None:
    """I/O: publishes a cut and stores the ledger, where there is anything to tell."""
    seen, now = Progress(run.now.bronze_id, run.now.complete_through), datetime.now(UTC)
    # Another run that has ended meanwhile has said it all, and further: its tables are no longer at what this one read.
    if Ledger.read(ctx.tables, seen.bronze_id) != run.stored:
        return
    ledger, stored = publish_cut(ctx, run.before, run.now, run.news), run.stored
    if not run.news.is_empty or ledger.is_worth_a_commit(stored, now):
        open_cuts(ctx.tables)
        ledger = stored = ledger.store(ctx.tables, now)
    memory.keep(stored, ledger, seen)


def _with_past(ctx: JobContext, ledger: Ledger, before: Ledger, news: News) -> Ledger:
    """*ledger* with the names that ended and the gaps that were healed. Where *before* does not know them, all of bronze is read, once."""
    if before.ended is None or before.healed is None:
        bronze = bronze_table(ctx.settings.source.name)
        healed = [snapshot.heals_up_to for snapshot in completed_snapshots(ctx.tables, bronze) if snapshot.heals_up_to is not None]
        ledger = ledger.having_met(namespaces_that_ended(ctx.tables, bronze), healed)
    return ledger.having_met(news.ended, news.healed)


def _run_one(ctx: JobContext, namespace: Namespace, of_bronze: BronzeRange, report: Callable[[SilverResult], None]) -> SilverResult:
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
    ctx: JobContext, ledger: Ledger, news: News, moved: Mapping[str, Namespace], wanted: Sequence[str], pool: Executor
) -> tuple[list[Namespace], dict[str, int]]:
    """Collections with changes that their table does not hold yet: those with *news*, and those whose table was dropped or restored to
    an older version. And the versions of idle tables that hold the same in other files: the older ones cannot be read for long."""
    found = news.concerned(moved, ledger.own, selection_of(ctx.settings.capture).admits)
    idle = [namespace for namespace in ledger.own if namespace not in found]
    looks = dict(zip(idle, pool.map(lambda namespace: _look(ctx, ledger, namespace), idle), strict=True))
    found |= {namespace for namespace, look in looks.items() if look.is_behind}
    kept_up = {table: version for look in looks.values() for table, version in look.kept_up.items()}
    return sorted(namespace for namespace in found if not wanted or str(namespace) in wanted), kept_up


@dataclass(frozen=True)
class _Look:
    """What became of an idle collection's tables since the last run."""

    is_behind: bool = False
    """One of them knows less than it once did."""
    kept_up: Mapping[str, int] = field(default_factory=dict)


def _look(ctx: JobContext, ledger: Ledger, namespace: Namespace) -> _Look:
    tables, known = tables_of(ctx, namespace), ledger.versions
    there = {each.name: ctx.tables.version(each.name) for each in tables if ctx.tables.exists(each.name)}
    moved_on = {name: version for name, version in there.items() if version != known.get(str(name))}
    if len(there) == len(tables) and not moved_on:
        return _Look()
    if min(ledger.own_progress(each.progress()) for each in tables) < ledger.own[namespace]:
        return _Look(is_behind=True)
    kept_up = {name: at for name, at in moved_on.items() if only_maintained(ctx.tables, name, known.get(str(name)), at)}
    return _Look(kept_up={str(name): at for name, at in kept_up.items()})


def _versions(ctx: JobContext, namespaces: Iterable[Namespace]) -> dict[str, int]:
    return {str(each.name): ctx.tables.version(each.name) for namespace in namespaces for each in tables_of(ctx, namespace)}
