"""Schema changes of silver tables, for display."""

from __future__ import annotations

from typing import Any

from strandline.jobs.lake_context import LakeContext
from strandline.model.query import Query
from strandline.model.table_schemas import SCHEMA_CHANGES


def schema_history(ctx: LakeContext, table: str | None = None, *, limit: int) -> list[dict[str, Any]]:
    """Return the newest *limit* schema changes, newest first. I/O: reads ``control.schema_changes``.

    Args:
        ctx: The pipeline.
        table: Such as ``silver.orders``; None: all tables.
        limit: Maximum number of rows.
    """
    if not ctx.tables.exists(SCHEMA_CHANGES):
        return []
    changes = (
        Query(SCHEMA_CHANGES).select(*ctx.tables.columns(SCHEMA_CHANGES)).order("-at", "table", "path").limit(limit)
    )
    return ctx.tables.query(changes if table is None else changes.where(("table", "=", table)))
