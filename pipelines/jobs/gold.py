"""The way from silver to gold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.gold.publish import GoldResult, load_graph, publish
from pipelines.jobs.context import JobContext


def run_gold(ctx: JobContext, names: Sequence[str] = ()) -> list[GoldResult]:
    """Build gold's views and tables in dependency order.

    I/O: reads silver (and whatever layer the SQL files name); writes gold. Idempotent: every build is a full one.

    Args:
        ctx: From `open_context`.
        names: Only these and what they read in gold; empty: all.

    Returns:
        One result per node: built, skipped or failed, with the reason. A failed one blocks just its descendants.

    Raises:
        ConfigurationError: The SQL files are wrong (all problems at once), or a name has no file. Nothing was built.
    """
    sql_dir = ctx.settings.gold.sql_dir
    graph = load_graph(Path(sql_dir) if sql_dir else None)
    return publish(ctx.tables, graph, names)
