"""Plan of the next gold build, the graph of the SQL files, and the tables that no file makes. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strandline.gold.build_plan import PlannedBuild, plan
from strandline.gold.graph import Graph
from strandline.gold.orphans import advice, orphans
from strandline.gold.sql_files import load_graph, node_names
from strandline.jobs.lake_context import LakeContext, PipelineContext
from strandline.model.tables import TableName
from strandline.settings.configuration import Settings
from strandline.settings.output import GoldSettings


def plan_gold(ctx: LakeContext, names: Sequence[str] = ()) -> list[PlannedBuild]:
    """Return the action that `run_gold` would take for each node, and the reason. Without *names*, also the orphans.

    I/O: reads SQL files, table properties and histories; writes nothing.
    """
    planned = plan(ctx.tables, graph_of(ctx.settings.gold), names, max_threads=ctx.settings.gold.max_threads)
    left = [] if names else gold_orphans(ctx)
    return planned + [PlannedBuild(table.name, "table", "orphaned", advice(table)) for table in left]


def graph_of(settings: GoldSettings) -> Graph:
    """Read the graph of the configured SQL files.

    I/O: reads the files in ``gold.sql_dir``; writes nothing.
    """
    return load_graph(Path(settings.sql_dir) if settings.sql_dir else None)


def is_defined(settings: Settings) -> bool:
    """Return True if there are SQL files or suites, for which Spark is needed. I/O: lists two folders."""
    sql_dir, suites = settings.gold.sql_dir, settings.quality.suites_dir
    has_suites = suites is not None and (not Path(suites).is_dir() or any(Path(suites).glob("*.yml")))
    return has_suites or bool(node_names(Path(sql_dir) if sql_dir else None))


def gold_orphans(ctx: LakeContext | PipelineContext) -> list[TableName]:
    """Return the gold tables whose SQL file was removed or renamed, sorted.

    I/O: lists the files and the tables, and reads properties of the tables without a file.
    """
    sql_dir = ctx.settings.gold.sql_dir
    return orphans(ctx.tables, node_names(Path(sql_dir) if sql_dir else None))
