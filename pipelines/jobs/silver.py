"""Silver: ``bronze.<source>`` → one typed table for each collection, MERGEd by document key."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import ContractError
from pipelines.io.tables import schema_of
from pipelines.jobs.context import JobContext
from pipelines.jobs.dead_letters import note_poison
from pipelines.model.columns import CHANGE_OPS, SCHEMA_CHANGES, SCHEMA_CHANGES_DDL, bronze_table
from pipelines.model.tables import TableName, safe_name
from pipelines.settings import SilverSettings
from pipelines.silver.latest import READS, latest_per_key, without_deleted_values
from pipelines.silver.ledger import Ledger, Namespace
from pipelines.silver.patches import folded_per_key, is_patch
from pipelines.silver.rows import census_of, census_of_state, typed_rows
from pipelines.silver.schema import Guards, SchemaChange, evolve
from pipelines.silver.writer import Progress, SilverTable


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

    def run_one(namespace: Namespace) -> SilverResult:
        table = SilverTable(ctx.tables, table_of(namespace, ctx.settings.silver))
        result = _run_collection(ctx, bronze, table, namespace, ledger, through)
        report(result)
        return result

    namespaces = _namespaces_with_news(ctx, bronze, ledger, through, collections)
    _refuse_shared_tables(namespaces, ctx.settings.silver)
    if namespaces:
        ctx.tables.create(SCHEMA_CHANGES, schema_of(SCHEMA_CHANGES_DDL))  # before its writers start side by side
    # A small MERGE is a dozen short Spark jobs with pauses between them: several tables at once fill the pauses.
    with ThreadPoolExecutor(max_workers=ctx.settings.silver.max_threads, thread_name_prefix="strandline-silver") as pool:
        results = list(pool.map(run_one, namespaces))
    if not collections and ledger.complete_through < through.version:
        ledger.advanced((result.namespace for result in results), through.version).store(ctx.tables)
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


def _namespaces_with_news(ctx: JobContext, bronze: TableName, ledger: Ledger, through: Progress, wanted: Sequence[str]) -> list[Namespace]:
    """Collections with changes that their table does not hold yet: those with rows in new versions (one read for all of them), and
    those whose table was dropped or restored to an older version."""
    found = {namespace for namespace, own in ledger.own.items() if _own_progress(ctx, ledger, namespace) < own}
    if ledger.complete_through < through.version:
        fresh = ctx.tables.changes(bronze, ledger.complete_through + 1, through.version).where(F.col("op").isin(*CHANGE_OPS))
        found |= {Namespace(row["db"], row["collection"]) for row in fresh.select("db", "collection").distinct().collect()}
    return sorted(namespace for namespace in found if not wanted or str(namespace) in wanted)


def _own_progress(ctx: JobContext, ledger: Ledger, namespace: Namespace) -> int:
    return ledger.own_progress(SilverTable(ctx.tables, table_of(namespace, ctx.settings.silver)).progress())


def _run_collection(
    ctx: JobContext, bronze: TableName, table: SilverTable, namespace: Namespace, ledger: Ledger, through: Progress
) -> SilverResult:
    """Read → census → schema → latest → typed → MERGE → progress, in this order of side effects."""
    started, settings = time.monotonic(), ctx.settings.silver
    shape, progress = table.open(str(namespace))
    after = ledger.effective(namespace, ledger.own_progress(progress))
    if after >= through.version:  # an earlier run over this collection alone has been here
        return SilverResult(table.name, namespace, 0, 0, 0, time.monotonic() - started)
    changes = _changes_of(ctx, bronze, after, through, namespace)
    census = census_of(changes, max_depth=settings.max_depth)
    exact_updates = ctx.settings.capture.full_update_type == "post_image"
    if _folds(ctx, table, changes):
        state = folded_per_key(changes, ctx.tables.read(table.name), exact_updates=exact_updates)
        census.merge(census_of_state(state, max_depth=settings.max_depth))
    else:
        state = latest_per_key(changes)
    if census.holds_poison:
        note_poison(ctx, namespace, state)
    shape, schema_changes = evolve(shape, census, Guards(settings.max_columns, settings.max_depth))
    if schema_changes:
        table.change_schema(shape, schema_changes)
        _note_schema_changes(ctx, table.name, schema_changes, through)
    if settings.deletes == "hard":
        state = without_deleted_values(state)
    merged = table.merge(typed_rows(state, shape, exact_updates=exact_updates), deletes=settings.deletes)
    table.advance(through)
    return SilverResult(table.name, namespace, merged.inserted, merged.updated, len(schema_changes), time.monotonic() - started)


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


def _changes_of(ctx: JobContext, bronze: TableName, after: int, through: Progress, namespace: Namespace) -> DataFrame:
    changes = ctx.tables.changes(bronze, after + 1, through.version)
    return changes.where((F.col("db") == namespace.db) & (F.col("collection") == namespace.collection)).select(*READS)


def _note_schema_changes(ctx: JobContext, table: TableName, changes: Sequence[SchemaChange], through: Progress) -> None:
    schema = schema_of(SCHEMA_CHANGES_DDL)
    now = datetime.now(UTC)
    rows = [(now, str(table), ".".join(change.path), change.before, change.after, through.version) for change in changes]
    ctx.tables.append(SCHEMA_CHANGES, ctx.spark.createDataFrame(rows, schema))
