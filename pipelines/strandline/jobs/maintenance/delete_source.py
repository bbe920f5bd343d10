"""Deletion of a source: its tables are dropped, and ``control.sources`` records who asked for it."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.control.proof import ProofTable
from strandline.control.sources import set_state, state_of
from strandline.errors import ConfigurationError
from strandline.io.tables.table_swap import discard
from strandline.jobs.context import JobContext
from strandline.jobs.silver.table_names import known_collections, table_of
from strandline.model.namespaces import Namespace
from strandline.model.quarantine import is_quarantine_of, quarantine_of
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName, history_of
from strandline.silver.history.table import HistoryTable
from strandline.silver.live_view import drop_live
from strandline.silver.owned_table import child_tables_in
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.silver_table import SilverTable


def delete_source(ctx: JobContext, *, by: str, why: str | None, dry_run: bool = False) -> list[TableName]:
    """Delete a source: drop its silver tables and their live views, then its bronze table. MongoDB is not changed.

    Archives of dropped collections (``…_dropped_…``) and gold are kept. `strandline start` lets the source begin anew.

    I/O: drops tables; deletes rows of ``control.proof``; writes one row to ``control.sources``.

    Args:
        ctx: The pipeline.
        by: Person or job that asked for it, for ``control.sources``.
        why: Reason, for ``control.sources``.
        dry_run: Only return the tables.

    Returns:
        The tables that were dropped, or would be.

    Raises:
        ConfigurationError: The source is not stopped.

    Effects on failure:
        Bronze is dropped last, because it leads to the other tables. Calling again drops the rest.
    """
    name = ctx.settings.source.name
    state = state_of(ctx.tables, name).state
    if state not in ("stopped", "deleted"):
        raise ConfigurationError(
            f"source {name} is {state}; it is deleted only while it is stopped", next_step="strandline stop"
        )
    tables = _tables_of_source(ctx)
    if not dry_run:
        for table in tables:
            drop_live(ctx.tables, table)
            discard(ctx.tables, table)
        ProofTable(ctx.tables, name).delete()
        set_state(ctx.tables, name, "deleted", by=by, why=why)
    return tables


def _tables_of_source(ctx: JobContext) -> list[TableName]:
    bronze = bronze_table(ctx.settings.source.name)
    if not ctx.tables.exists(bronze):
        return []
    namespaces = known_collections(ctx, ProgressIndex.read(ctx.tables, bronze))
    tables = [table for namespace in namespaces for table in _tables_of_collection(ctx, namespace)]
    return [*child_tables_in(ctx.tables, ctx.settings.source.name), *tables, bronze]


def _tables_of_collection(ctx: JobContext, namespace: Namespace) -> Iterator[TableName]:
    """Yield tables whose properties name this collection and source. Their names alone prove nothing."""
    table, source = table_of(ctx, namespace), ctx.settings.source.name
    silver, quarantine = SilverTable(ctx.tables, table), quarantine_of(table)
    is_own = silver.belongs_to(str(namespace), source)
    if is_own and ctx.tables.exists(quarantine) and is_quarantine_of(table, ctx.tables.properties(quarantine)):
        yield quarantine
    history = HistoryTable(ctx.tables, history_of(table))
    if history.belongs_to(history.owner_of(str(namespace)), source):
        yield history.name
    if is_own:
        yield table
