"""Silver: ``bronze.<source>`` → one typed table for each collection, MERGEd by document key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pipelines.errors import ContractError
from pipelines.io.tables import schema_of
from pipelines.jobs.context import JobContext
from pipelines.jobs.selection import selection_of
from pipelines.jobs.silver_collection import BronzeRange, CollectionRun, SilverResult, table_of
from pipelines.model.columns import SCHEMA_CHANGES, SCHEMA_CHANGES_DDL, bronze_table
from pipelines.model.namespaces import Namespace
from pipelines.model.tables import TableName
from pipelines.settings import SilverSettings
from pipelines.silver.ledger import Ledger
from pipelines.silver.news import News
from pipelines.silver.writer import Progress, SilverTable


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

    of_bronze = BronzeRange(bronze, ledger, through, news)

    def run_one(namespace: Namespace) -> SilverResult:
        result = CollectionRun(ctx, namespace, of_bronze).run()
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
