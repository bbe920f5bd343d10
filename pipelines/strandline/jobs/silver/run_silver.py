"""Silver: ``bronze.<source>`` → one typed table for each collection, merged by document key."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache

from strandline.errors import ContractError
from strandline.io.spark.races import retrying
from strandline.io.tables.versions import with_fresh_versions
from strandline.io.telemetry.metrics import count_silver
from strandline.io.telemetry.progress import PROGRESS
from strandline.io.telemetry.tracing import annotate, span
from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.parallel_map import parallel_map
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.children import children_of
from strandline.jobs.silver.collection import CollectionRun, SilverResult
from strandline.jobs.silver.lineage import merge_told
from strandline.jobs.silver.run_cut import publish_cut, writer_of
from strandline.jobs.silver.run_plan import RunPlan, plan_run
from strandline.jobs.silver.table_ends import TableEnd, newest_position
from strandline.jobs.silver.table_names import holder_of, known_collections, name_conflicts, table_of
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import SCHEMA_CHANGES, SCHEMA_CHANGES_DDL, bronze_table
from strandline.model.tables import TableName, live_of
from strandline.silver.column_mapping import mapping_note
from strandline.silver.progress import BronzeLog, Progress
from strandline.silver.progress_index import ProgressIndex

_log = logging.getLogger("strandline.silver")
_Report = Callable[[SilverResult], None]


@dataclass
class SilverMemory:
    """Progress of this process since the progress index was stored. Heartbeats alone are not worth a commit."""

    merged_through: Progress | None = None
    """Version of bronze that the last run over all collections reached; None: no such run yet."""
    seen: set[TableName] = field(default_factory=set)
    """Tables that this process has merged."""
    _newest_stored: ProgressIndex | None = None
    _progress_index: ProgressIndex | None = None

    def progress_index(self, newest: ProgressIndex) -> ProgressIndex:
        """Return the index of the last run; *newest* if another process has stored a newer one. I/O: as `believed`."""
        if self._progress_index is None or self._newest_stored != newest:
            return newest
        return replace(self._progress_index, bronze=newest.bronze).believed()

    def keep(self, newest: ProgressIndex, progress_index: ProgressIndex, merged_through: Progress) -> None:
        """Remember *progress_index*, which is at or ahead of the *newest* one."""
        self._newest_stored, self._progress_index, self.merged_through = newest, progress_index, merged_through


def run_silver(
    ctx: PipelineContext,
    *,
    collections: Sequence[str] = (),
    report: _Report = lambda _: None,
    memory: SilverMemory | None = None,
) -> list[SilverResult]:
    """Merge all new rows of bronze into silver, several tables in parallel.

    I/O: reads the bronze increment; writes silver, a cut and the progress index. A collection without new rows is not
    touched, and an idle source makes no commit.

    Args:
        ctx: The pipeline.
        collections: ``db.collection`` names; empty: all.
        report: Called after each table.
        memory: Pass the same object to every run of a process: a run returns at once while bronze has no new version.

    Effects on failure:
        All other tables are complete. No cut is published. Calling again is safe: the failed table repeats its MERGE.
    """
    return with_fresh_versions(lambda: _run_silver(ctx, collections, report, memory or SilverMemory()))


def _run_silver(
    ctx: PipelineContext, collections: Sequence[str], report: _Report, memory: SilverMemory
) -> list[SilverResult]:
    """Merge up to the current version of bronze."""
    table = bronze_table(ctx.settings.source.name)
    if not ctx.tables.exists(table):
        raise ContractError(f"there is no {table} yet", next_step="strandline capture --once")
    through = BronzeLog.of(ctx.tables, table).newest()
    if memory.merged_through == through:
        return []
    with span("silver run", bronze_version=through.version):
        return _merge_through(ctx, through, collections, report, memory)


def _merge_through(
    ctx: PipelineContext, through: Progress, collections: Sequence[str], report: _Report, memory: SilverMemory
) -> list[SilverResult]:
    newest = ProgressIndex.read(ctx.tables, bronze_table(ctx.settings.source.name))
    index = _under_settings(ctx, memory.progress_index(newest))
    if index.through is None and not collections:
        index = _before_all_of_bronze(ctx, index, newest)
    bronze = BronzeState.read(ctx, index, through)
    # A small MERGE is a dozen short Spark jobs with pauses between them: several tables in parallel fill the pauses.
    with ThreadPoolExecutor(
        max_workers=ctx.settings.silver.max_threads, thread_name_prefix="strandline-silver"
    ) as pool:
        plan = plan_run(ctx, bronze, collections, pool)
        results = _merge_collections(ctx, bronze, plan.collections, report, pool, memory.seen)
    if not collections and bronze.has_news:
        ends = [end for result in results for end in result.ends]
        _publish(ctx, bronze, _advanced_index(bronze, plan, results, ends), ends, newest, memory)
    return results


def _under_settings(ctx: PipelineContext, index: ProgressIndex) -> ProgressIndex:
    """Return the index under ``silver.tables``. All of bronze is read anew if other collections belong to a table now.

    Each table goes on from its own progress. One that has none gets all rows.
    """
    settings = ctx.settings.silver
    if index.tenant_tables == settings.patterns:
        return index
    holders = {holder_of(settings, name) for name in index.own}
    collections = [name for name in holders if not name.is_tenant_table or name.collection in settings.tables]
    return replace(index.unread(collections), tenant_tables=settings.patterns)


def _before_all_of_bronze(ctx: PipelineContext, index: ProgressIndex, newest: ProgressIndex) -> ProgressIndex:
    """Return the index for a run that reads all of bronze. I/O: reads a column of the silver tables that exist.

    Args:
        newest: The index in the lake.
    """
    if index.own and index.tenant_tables == newest.tenant_tables:
        _log.warning(
            "%s no longer has the commit up to which silver has merged: its log was cleaned up since (Delta keeps"
            " 30 days), or an older copy of its folder was put back. All of it is read anew",
            index.bronze.table,
        )
    names = {table_of(ctx, namespace) for namespace in known_collections(ctx, index)}
    positions = (newest_position(ctx.tables, name) for name in names if ctx.tables.exists(name))
    return replace(index, merged_before=max(positions, default=""))


def _merge_collections(
    ctx: PipelineContext,
    bronze: BronzeState,
    namespaces: Sequence[Namespace],
    report: _Report,
    pool: Executor,
    seen: set[TableName],
) -> list[SilverResult]:
    if namespaces:
        ctx.tables.create_table(SCHEMA_CHANGES, SCHEMA_CHANGES_DDL)  # before parallel writers need it
    tables_at_once = min(ctx.settings.silver.max_threads, len(namespaces))
    own_names = {namespace: table_of(ctx, namespace) for namespace in namespaces}
    if not ctx.tables.lake.by_path:
        from strandline.silver.live_view import make_room  # imports PySpark

        for table in set(own_names.values()) - seen:
            make_room(ctx.with_spark().tables, table)
    refused = name_conflicts(ctx, namespaces)

    def merge_one(namespace: Namespace) -> SilverResult:
        if namespace in refused:  # neither collection may write to a table that both would use
            raise refused[namespace]
        with _observed(ctx, namespace, own_names[namespace]) as merged:
            result = _merge_collection(ctx, bronze, namespace, tables_at_once)
            merged(result)
        if result.table not in seen:
            seen.add(result.table)
            _look_once(ctx, result.table, shows_live=live_of(result.table) not in own_names.values())
        _count(result)
        report(result)
        return result

    with PROGRESS.step("silver", "tables", len(namespaces)) as step:
        return parallel_map(pool, step.counting(merge_one), namespaces)


@contextmanager
def _observed(ctx: PipelineContext, namespace: Namespace, table: TableName) -> Iterator[Callable[[SilverResult], None]]:
    """Trace and tell the merge of one collection. Call the yielded function with its result."""
    bronze = bronze_table(ctx.settings.source.name)
    with (
        span("silver table", table=str(table), collection=str(namespace)),
        merge_told(ctx.tables, bronze, table) as wrote,
    ):

        def merged(result: SilverResult) -> None:
            annotate(inserted=result.inserted, updated=result.updated, versions=result.versions)
            wrote(result.inserted + result.updated)

        yield merged


def _merge_collection(
    ctx: PipelineContext, bronze: BronzeState, namespace: Namespace, tables_at_once: int
) -> SilverResult:
    for attempt in retrying():  # another silver run may write to the same table: each attempt reads its commits anew
        with attempt:
            result = CollectionRun(ctx, namespace, bronze, tables_at_once=tables_at_once).run()
            if ctx.settings.silver.keeps_history(str(namespace)):
                from strandline.jobs.silver.history import HistoryRun  # imports PySpark

                changed, end = HistoryRun(ctx.with_spark(), namespace, bronze).run()
                result = replace(result, versions=changed.rows, ends=(*result.ends, end))
            elements = [child.run().rows for child in children_of(ctx, namespace, bronze.direct)]
            result = replace(result, elements=sum(elements))
    return result


def _look_once(ctx: PipelineContext, table: TableName, *, shows_live: bool) -> None:
    """Do what is done once per process and table. I/O: reads table properties; writes at most one view."""
    if (note := mapping_note(table, ctx.tables.properties(table))) is not None:
        _log.warning("%s", note)
    if shows_live and ctx.settings.silver.live_views and not ctx.tables.lake.by_path:
        from strandline.silver.live_view import show_live  # imports PySpark

        show_live(ctx.with_spark().tables, table)


def _count(result: SilverResult) -> None:
    counts = {"inserted": result.inserted, "updated": result.updated, "versions": result.versions}
    count_silver(str(result.table), counts, result.seconds)


def _advanced_index(
    bronze: BronzeState, plan: RunPlan, results: Sequence[SilverResult], ends: Sequence[TableEnd]
) -> ProgressIndex:
    """Return the progress index after a run over all collections."""
    before = bronze.progress_index
    versions = plan.maintained_versions | {str(end.table): end.version for end in ends}
    inexact_reasons = {str(result.table): result.inexact_reasons for result in results}
    index = before.after_run(plan.collections, bronze.through, bronze.renamed_from, versions, inexact_reasons)
    increment = bronze.increment
    return index.with_events(increment.ended_names, increment.healed_positions, bronze.healed_collections())


def _publish(
    ctx: PipelineContext,
    bronze: BronzeState,
    index: ProgressIndex,
    ends: Sequence[TableEnd],
    newest: ProgressIndex,
    memory: SilverMemory,
) -> None:
    """I/O: publishes a cut if a table has changed, then stores the progress index if it is worth a commit."""
    # A concurrent run that ended first has stored a newer index: this run's table versions are then out of date.
    if ProgressIndex.read(ctx.tables, index.bronze.table) != newest:
        return
    now = datetime.now(UTC)
    writer = cache(lambda: writer_of(ctx))  # opens the table; most runs write twice or not at all
    index = publish_cut(ctx, bronze, index, ends, writer)
    if not bronze.increment.is_empty or index.is_worth_a_commit(newest, now):
        index = newest = retrying()(index.store, writer(), now)
    memory.keep(newest, index, bronze.through)
