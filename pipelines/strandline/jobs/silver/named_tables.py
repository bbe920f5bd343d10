"""Tables of silver that a user names as collections are named in MongoDB. No Spark."""

from __future__ import annotations

from strandline.jobs.lake_context import LakeContext, PipelineContext
from strandline.model.tables import TableName, names_of_collection
from strandline.settings.configuration import Settings


def tables_of_collection(settings: Settings, collection: str) -> list[TableName]:
    """Return the tables that a collection may have. It is named with or without its database. Pure."""
    silver = settings.silver
    names = names_of_collection(collection, prefix=silver.table_prefix, delimiter=silver.table_delimiter)
    return [TableName("silver", name) for name in names]


def table_named(ctx: LakeContext | PipelineContext, text: str) -> TableName:
    """Return the table that a user names: ``orders``, ``silver.orders``, or its collection as MongoDB has it.

    I/O: looks up the tables. Without a match, the table that *text* itself names.
    """
    table = TableName("silver", text.removeprefix("silver."))
    if ctx.tables.exists(table):
        return table
    return next(filter(ctx.tables.exists, tables_of_collection(ctx.settings, table.name)), table)
