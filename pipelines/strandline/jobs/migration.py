"""Migrate the tables of an older lake to this release's format. Commands that write call it."""

from __future__ import annotations

from strandline.io.format_check import older_tables, words_for
from strandline.io.migration import migrate_lake
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import LakeContext
from strandline.model.lake_format import FORMAT
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName


def migrate(ctx: JobContext, *, everything: bool = False) -> list[TableName]:
    """Migrate every table of the lake to this release's format, and return the tables that were older.

    I/O: reads table properties; writes tables. Of bronze, only this source's table is migrated, as the last one: if it
    has the format, one read is enough. Idempotent. Two processes can migrate at the same time. A table that a RESTORE
    took back to an older format is migrated when it is opened for writing.

    Args:
        everything: Check every table, even if bronze has the format.

    Raises:
        ConfigurationError: A table has a newer format. No table was changed.

    Effects on failure:
        Some tables are migrated. All tables are readable. Another call migrates the rest.
    """
    return migrate_lake(ctx.tables, bronze_table(ctx.settings.source.name), everything=everything)


def describe_format(ctx: LakeContext) -> str:
    """Describe the format of the lake and the changes that `migrate` would make.

    I/O: reads the properties of each table.
    """
    older = list(older_tables(ctx.tables, bronze_table(ctx.settings.source.name)))
    if not older:
        return str(FORMAT)
    found, named = min(number for _, number in older), [words_for(ctx.tables, table) for table, _ in older]
    changing = [words for words in named if words.endswith(")")]
    return f"{found}: the next capture, silver, run or maintain brings {len(older)} tables to {FORMAT}; " + (
        "; ".join(changing) or "no column changes"
    )
