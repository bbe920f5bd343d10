"""Plan of the next gold build, and the graph of the SQL files. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strandline.gold.build_plan import PlannedBuild, plan
from strandline.gold.graph import Graph
from strandline.gold.sql_files import load_graph
from strandline.jobs.lake_context import LakeContext
from strandline.settings.output import GoldSettings


def plan_gold(ctx: LakeContext, names: Sequence[str] = ()) -> list[PlannedBuild]:
    """Return the action that `run_gold` would take for each node, and the reason.

    I/O: reads SQL files, table properties and histories; writes nothing.
    """
    return plan(ctx.tables, graph_of(ctx.settings.gold), names, max_threads=ctx.settings.gold.max_threads)


def graph_of(settings: GoldSettings) -> Graph:
    """Read the graph of the configured SQL files.

    I/O: reads the files in ``gold.sql_dir``; writes nothing.
    """
    return load_graph(Path(settings.sql_dir) if settings.sql_dir else None)
