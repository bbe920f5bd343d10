"""A lake of an older format, met by a verb that writes: its tables are brought up to this release's format, once."""

from __future__ import annotations

from pipelines.io.migration import migrate_table, older_tables, words_for
from pipelines.jobs.context import JobContext
from pipelines.model.lake_format import FORMAT, format_of
from pipelines.model.table_schemas import bronze_table
from pipelines.model.tables import TableName


def migrate(ctx: JobContext, *, everything: bool = False) -> list[TableName]:
    """I/O: gives every table of the lake today's format; of bronze only this source's, as the last one. One look where bronze has it.

    Idempotent; of two processes one wins, and the other goes on. A table that a RESTORE took back to an older format is migrated when it
    is opened for writing.

    Args:
        everything: Look at every table, whatever bronze says.

    Returns:
        The tables that had an older format.

    Raises:
        ConfigurationError: A table has a newer format; nothing was written.

    Effects on failure:
        Some tables are migrated. All are readable; calling again goes on.
    """
    bronze = bronze_table(ctx.settings.source.name)
    if not ctx.tables.exists(bronze) or (not everything and format_of(ctx.tables.properties(bronze)) >= FORMAT):
        return []
    older = list(older_tables(ctx.tables, bronze))  # all are looked at before one is changed: a newer one ends it here
    return [table for table, _ in older if migrate_table(ctx.tables, table)]


def format_in_words(ctx: JobContext) -> str:
    """I/O: one look at each table: the lake's format, and what `migrate` would do."""
    older = list(older_tables(ctx.tables, bronze_table(ctx.settings.source.name)))
    if not older:
        return str(FORMAT)
    found, named = min(number for _, number in older), [words_for(ctx.tables, table) for table, _ in older]
    changing = [words for words in named if words.endswith(")")]
    return f"{found}: the next capture, silver, run or maintain brings {len(older)} tables to {FORMAT}; " + (
        "; ".join(changing) or "no column changes"
    )
