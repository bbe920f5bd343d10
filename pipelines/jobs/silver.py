"""Silver: ``bronze.<source>`` → one typed table for each collection, MERGEd by document key."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import ContractError
from pipelines.io.tables import schema_of
from pipelines.jobs.context import JobContext
from pipelines.jobs.selection import selection_of
from pipelines.model.columns import CHANGE_OPS, SCHEMA_CHANGES, SCHEMA_CHANGES_DDL, bronze_table
from pipelines.model.namespaces import Namespace
from pipelines.model.tables import TableName, safe_name
from pipelines.settings import SilverSettings
from pipelines.silver.incarnations import Incarnations
from pipelines.silver.latest import READS, latest_per_key, without_deleted_values
from pipelines.silver.ledger import Ledger
from pipelines.silver.news import News
from pipelines.silver.patches import folded_per_key, is_patch
from pipelines.silver.rows import census_of, census_of_state, typed_rows
from pipelines.silver.schema import Guards, SchemaChange, evolve
from pipelines.silver.shape import Shape
from pipelines.silver.writer import Merged, Progress, SilverTable

_log = logging.getLogger("strandline.silver")


@dataclass(frozen=True)
class SilverResult:
    """What one run did to one table."""

    table: TableName
    namespace: Namespace
    inserted: int
    updated: int
    schema_changes: int
    seconds: float


def run_silver(
    ctx: JobContext, *, collections: Sequence[str] = (), report: Callable[[SilverResult], None] = lambda _: None
) -> list[SilverResult]:
    """I/O: reads what is new in bronze; MERGEs it, some tables at once; a collection without news costs nothing.

    Args:
        collections: ``db.collection`` names; empty: all.

    Effects on failure:
        The other tables are complete or not begun; the failed one repeats its MERGE. Calling again is safe.
    """
    bronze = bronze_table(ctx.settings.source.name)
    if not ctx.tables.exists(bronze):
        raise ContractError(f"there is no {bronze} yet", next_step="strandline capture --once")
    through = Progress(ctx.tables.id(bronze), ctx.tables.version(bronze))
    ledger = Ledger.read(ctx.tables, through.bronze_id)
    news = News.read(ctx.tables, bronze, ledger.complete_through, through.version)
    moved = news.moved(ledger.moved)

    def run_one(namespace: Namespace) -> SilverResult:
        table = SilverTable(ctx.tables, table_of(namespace, ctx.settings.silver))
        result = _run_collection(ctx, bronze, table, namespace, ledger, through, news)
        report(result)
        return result

    namespaces = _namespaces_with_news(ctx, ledger, news, moved, collections)
    _refuse_shared_tables(namespaces, ctx.settings.silver)
    if namespaces:
        ctx.tables.create(SCHEMA_CHANGES, schema_of(SCHEMA_CHANGES_DDL))  # before its writers start side by side
    # A small MERGE is a dozen short Spark jobs with pauses between them: several tables at once fill the pauses.
    with ThreadPoolExecutor(max_workers=ctx.settings.silver.max_threads, thread_name_prefix="strandline-silver") as pool:
        results = list(pool.map(run_one, namespaces))
    if not collections and ledger.complete_through < through.version:
        ledger.advanced((result.namespace for result in results), through.version, moved).store(ctx.tables)
    return results


def table_of(namespace: Namespace, settings: SilverSettings) -> TableName:
    """The silver table of a collection."""
    return TableName("silver", safe_name(namespace.collection) if settings.naming == "collection" else safe_name(*namespace))


def _refuse_shared_tables(namespaces: Sequence[Namespace], settings: SilverSettings) -> None:
    """Two collections of one run must not even race for a table; collections of different runs are told apart by the table itself."""
    owners: dict[TableName, Namespace] = {}
    for namespace in namespaces:
        owner = owners.setdefault(table_of(namespace, settings), namespace)
        if owner != namespace:
            raise ContractError(
                f"{owner} and {namespace} would share {table_of(namespace, settings)}",
                next_step="set silver.naming: database_collection, so that two collections never share a table",
            )


def _namespaces_with_news(
    ctx: JobContext, ledger: Ledger, news: News, moved: Mapping[str, Namespace], wanted: Sequence[str]
) -> list[Namespace]:
    """Collections with changes that their table does not hold yet: those with *news*, and those whose table was dropped or restored to
    an older version."""
    found = {namespace for namespace, own in ledger.own.items() if _own_progress(ctx, ledger, namespace) < own}
    found |= news.concerned(moved, ledger.own, selection_of(ctx.settings.capture).admits)
    return sorted(namespace for namespace in found if not wanted or str(namespace) in wanted)


def _own_progress(ctx: JobContext, ledger: Ledger, namespace: Namespace) -> int:
    return ledger.own_progress(SilverTable(ctx.tables, table_of(namespace, ctx.settings.silver)).progress())


def _run_collection(
    ctx: JobContext, bronze: TableName, table: SilverTable, namespace: Namespace, ledger: Ledger, through: Progress, news: News
) -> SilverResult:
    """Read → MERGE → drops and renames → progress, in this order of side effects."""
    started, settings = time.monotonic(), ctx.settings.silver
    opened = table.open(str(namespace))
    after = ledger.effective(namespace, ledger.own_progress(opened.progress))
    if after >= through.version:  # an earlier run over this collection alone has been here
        return SilverResult(table.name, namespace, 0, 0, 0, time.monotonic() - started)
    if after < news.after:  # the table was dropped or restored: it has more to catch up with than the others
        news = News.read(ctx.tables, bronze, after, through.version)
    shape, known = opened.shape, opened.incarnations
    lives = known.after(news.events, namespace, drops=settings.on_drop != "keep", renames=settings.on_rename == "follow")
    changes = lives.stamped(_changes_of(ctx, bronze, after, through, namespace, lives, known))
    for end, ended in _ends_to_archive(news, namespace, known) if settings.on_drop == "archive" else ():
        shape, _, _ = _merge(ctx, table, shape, changes.where(F.col("position") < end), known, through)
        for archive in table.archive(ended):
            _log.info("%s was dropped: its rows are kept in %s", namespace, archive)
        table.retire(ended, deletes=settings.deletes)
    _, merged, schema_changes = _merge(ctx, table, shape, changes, lives, through)
    if lives.newer_than(known).ended:
        table.retire(lives, deletes=settings.deletes)
    table.advance(through, lives)
    return SilverResult(table.name, namespace, merged.inserted, merged.updated, schema_changes, time.monotonic() - started)


def _merge(
    ctx: JobContext, table: SilverTable, shape: Shape, changes: DataFrame, lives: Incarnations, through: Progress
) -> tuple[Shape, Merged, int]:
    """Census → schema → latest → typed → MERGE. Returns the table's next shape, and how many columns were added or widened for it."""
    settings = ctx.settings.silver
    census = census_of(changes, max_depth=settings.max_depth)
    exact_updates = ctx.settings.capture.full_update_type == "post_image"
    if _folds(ctx, table, changes):
        state = folded_per_key(changes, ctx.tables.read(table.name), exact_updates=exact_updates)
        census.merge(census_of_state(state, max_depth=settings.max_depth))
    else:
        state = latest_per_key(changes)
    shape, schema_changes = evolve(shape, census, Guards(settings.max_columns, settings.max_depth))
    if schema_changes:
        table.change_schema(shape, schema_changes)
        _note_schema_changes(ctx, table.name, schema_changes, through)
    state = lives.retired(state)
    if settings.deletes == "hard":
        state = without_deleted_values(state)
    merged = table.merge(typed_rows(state, shape, exact_updates=exact_updates), deletes=settings.deletes)
    return shape, merged, len(schema_changes)


def _ends_to_archive(news: News, namespace: Namespace, known: Incarnations) -> list[tuple[str, Incarnations]]:
    """Every drop by itself, in order: what it ends must be whole in the table before the next life replaces it."""
    events = sorted(news.events, key=lambda event: event.position)
    ends = ((event.position, Incarnations().after([event], namespace, drops=True, renames=False)) for event in events)
    return [(position, ended) for position, ended in ends if ended.newer_than(known).ended]


def _folds(ctx: JobContext, table: SilverTable, changes: DataFrame) -> bool:
    """Whether the table holds patches or gets its first ones. Where updates are looked up there are none: a document that was gone by then
    is followed by its delete."""
    if table.folds():
        return True
    capture = ctx.settings.capture
    looked_up = "update_full" in capture.mode and capture.full_update_type == "lookup"
    if looked_up or changes.where(is_patch()).isEmpty():
        return False
    table.note_folding()
    return True


def _changes_of(
    ctx: JobContext, bronze: TableName, after: int, through: Progress, namespace: Namespace, lives: Incarnations, known: Incarnations
) -> DataFrame:
    """New rows of the collection, under whatever name they came; of one that came by a rename just now, all there ever were."""
    is_its_own = (F.col("db") == namespace.db) & (F.col("collection") == namespace.collection)
    changes = ctx.tables.changes(bronze, after + 1, through.version).where(is_its_own | lives.brings()).select(*READS)
    arrived = Incarnations(came=lives.newer_than(known).came)
    if not arrived.came:
        return changes
    earlier = ctx.tables.read(bronze, version=through.version).where(F.col("op").isin(*CHANGE_OPS) & arrived.brings())
    return changes.unionByName(earlier.withColumn("_commit_version", F.lit(through.version).cast("BIGINT")).select(*READS))


def _note_schema_changes(ctx: JobContext, table: TableName, changes: Sequence[SchemaChange], through: Progress) -> None:
    schema = schema_of(SCHEMA_CHANGES_DDL)
    now = datetime.now(UTC)
    rows = [(now, str(table), ".".join(change.path), change.before, change.after, through.version) for change in changes]
    ctx.tables.append(SCHEMA_CHANGES, ctx.spark.createDataFrame(rows, schema))
