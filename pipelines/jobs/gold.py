"""The way from silver to gold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.gold.graph import Graph
from pipelines.gold.publish import GoldResult, Planned, load_graph, plan, publish
from pipelines.jobs.context import JobContext
from pipelines.settings import GoldSettings


def run_gold(ctx: JobContext, names: Sequence[str] = ()) -> list[GoldResult]:
    """Build the gold views and tables whose inputs or SQL changed, in dependency order.

    I/O: reads silver (and whatever layer the SQL files name); writes gold. Idempotent.

    Args:
        ctx: From `open_context`.
        names: Only these and what they read in gold; empty: all.

    Returns:
        One result per node: built, unchanged, skipped or failed, with the reason. A failed one blocks just its descendants.

    Raises:
        ConfigurationError: The SQL files are wrong (all problems at once), or a name has no file. Nothing was built.
    """
    return publish(ctx.tables, graph_of(ctx.settings.gold), names, max_threads=ctx.settings.gold.max_threads)


def plan_gold(ctx: JobContext, names: Sequence[str] = ()) -> list[Planned]:
    """What `run_gold` would do, and why. I/O: reads; writes nothing."""
    return plan(ctx.tables, graph_of(ctx.settings.gold), names, max_threads=ctx.settings.gold.max_threads)


def graph_of(settings: GoldSettings) -> Graph:
    """I/O: reads the SQL files that *settings* name."""
    return load_graph(Path(settings.sql_dir) if settings.sql_dir else None)
