"""Names of silver tables, and the collections that have one."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.errors import ContractError
from strandline.jobs.lake_context import LakeContext, PipelineContext
from strandline.model.namespaces import Namespace
from strandline.model.tables import TableName, history_of, safe_name
from strandline.model.tenants import key_prefix
from strandline.settings.silver import SilverSettings
from strandline.silver.incarnations import facts_in
from strandline.silver.owned_table import NEXT_STEP_WHEN_SHARED, collection_of, owners_in
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.silver_metadata import SilverMetadata


def holder_of(settings: SilverSettings, namespace: Namespace) -> Namespace:
    """Return the name under which silver merges a collection: its tenant table, if it has one, else the collection.

    Raises:
        ConfigurationError: Two lines of ``silver.tables`` claim the collection.
    """
    return Namespace.parse(settings.named(str(namespace)))


def key_prefix_of(settings: SilverSettings, namespace: Namespace) -> str:
    """Return the beginning of a collection's keys in its silver table, if it is a tenant. Empty: the table is its own.

    Raises ConfigurationError as `holder_of`.
    """
    return key_prefix(namespace) if holder_of(settings, namespace).is_tenant_table else ""


def table_of(ctx: LakeContext | PipelineContext, namespace: Namespace) -> TableName:
    """Return the name of a collection's silver table, by ``silver.tables`` and ``silver.naming``.

    With ``auto`` an existing table of the collection keeps its name.

    I/O: with ``auto``, looks up the table under both possible names.
    """
    settings = ctx.settings.silver
    if (holder := holder_of(settings, namespace)).is_tenant_table:
        return TableName("silver", settings.table_prefix + holder.collection)
    if settings.naming != "auto":
        return _named(namespace, settings, with_database=settings.naming == "database_collection")
    spans_databases = ctx.settings.capture.scope in (None, "deployment")
    table = _named(namespace, settings, with_database=spans_databases)
    other = _named(namespace, settings, with_database=not spans_databases)
    return other if _holds(ctx, other, namespace) and not _holds(ctx, table, namespace) else table


def collections_of(ctx: LakeContext | PipelineContext, holder: Namespace) -> list[Namespace]:
    """Return the collections whose rows a silver table has: itself, or the tenants. I/O: reads table properties."""
    if not holder.is_tenant_table:
        return [holder]
    table = table_of(ctx, holder)
    return [*facts_in(ctx.tables.properties(table), holder)] if ctx.tables.exists(table) else []


def names_of(ctx: PipelineContext, namespace: Namespace) -> list[TableName]:
    """Return the silver table of a collection, and its history table if it keeps a history."""
    silver = table_of(ctx, namespace)
    return [silver, history_of(silver)] if ctx.settings.silver.keeps_history(str(namespace)) else [silver]


def known_collections(ctx: PipelineContext, progress_index: ProgressIndex) -> list[Namespace]:
    """Return every collection of this source that has a silver table of its own, and every tenant table.

    I/O: reads the properties of silver tables. The progress index lacks collections that only limited runs have merged.
    """
    names = {*progress_index.own, *map(collection_of, owners_in(ctx.tables, ctx.settings.source.name))}
    return sorted({holder_of(ctx.settings.silver, name) for name in names})


def name_conflicts(ctx: PipelineContext, namespaces: Sequence[Namespace]) -> dict[Namespace, ContractError]:
    """Return an error for each collection whose table belongs to another one of *namespaces*.

    I/O: reads the owner of each shared table. The owner itself has no error.
    """
    sharing: dict[TableName, list[Namespace]] = {}
    for namespace in namespaces:
        sharing.setdefault(table_of(ctx, namespace), []).append(namespace)
    conflicts = {}
    for table, group in sharing.items():
        owner = SilverMetadata(ctx.tables, table).owner() if len(group) > 1 else str(group[0])
        for namespace in group:
            if str(namespace) != owner:
                text = f"{' and '.join(map(str, group))} would share {table}"
                conflicts[namespace] = ContractError(text, next_step=NEXT_STEP_WHEN_SHARED)
    return conflicts


def _named(namespace: Namespace, settings: SilverSettings, *, with_database: bool) -> TableName:
    parts = namespace if with_database else (namespace.collection,)
    return TableName("silver", safe_name(*parts, prefix=settings.table_prefix, delimiter=settings.table_delimiter))


def _holds(ctx: LakeContext | PipelineContext, table: TableName, namespace: Namespace) -> bool:
    return SilverMetadata(ctx.tables, table).belongs_to(str(namespace), ctx.settings.source.name)
