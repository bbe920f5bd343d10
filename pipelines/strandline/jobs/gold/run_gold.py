"""Jobs that build and test gold, and drop its old tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from strandline.errors import ConfigurationError
from strandline.gold.case_runner import CaseResult, run_case
from strandline.gold.cases import load_cases
from strandline.gold.publish import publish
from strandline.gold.results import GoldResult
from strandline.gold.statement import suggestion
from strandline.io.tables.table_swap import discard
from strandline.io.tables.versions import with_fresh_versions
from strandline.io.telemetry.tracing import span
from strandline.jobs.context import JobContext
from strandline.jobs.gold.observed import observed_builds
from strandline.jobs.gold.planned import gold_orphans, graph_of
from strandline.jobs.gold.refresh import finished_gold
from strandline.jobs.lake_context import tables_to_merge
from strandline.model.tables import TableName

NO_GOLD: Final = (
    "no SQL files: write some into conf/gold, or name their folder in gold.sql_dir (strandline explain gold)"
)
"""Advice for a project without gold."""
NO_CASES: Final = (
    "no cases: write some into `tests` beside the SQL files, or name their folder in gold.tests_dir"
    " (strandline explain gold)"
)
"""Advice for a project without cases of gold."""


def run_gold(
    ctx: JobContext, names: Sequence[str] = (), *, versions: Mapping[TableName, int] | None = None
) -> list[GoldResult]:
    """Build the gold views and tables whose inputs or SQL changed, in dependency order.

    I/O: reads the tables named in the SQL files, mostly silver; writes gold, and the SQL files of its views in a lake
    by path. Idempotent.

    Args:
        ctx: From `open_context`.
        names: Nodes to build, together with the gold nodes that they read. Empty: all.
        versions: Versions to read. None, or a table without an entry: the newest version.

    Returns:
        One result per node: built, unchanged, skipped or failed, with the reason. A failed node blocks its descendants.
        Without *names*, also one per table whose SQL file is gone: orphaned.

    Raises:
        ConfigurationError: The SQL files are invalid (lists all problems), or a name has no file. Nothing was built.
        VersionGone: One of *versions* can no longer be read. The nodes that do not read it are built.
    """
    with span("gold run"):
        return with_fresh_versions(lambda: build_gold(ctx, names, versions))


def build_gold(ctx: JobContext, names: Sequence[str], versions: Mapping[TableName, int] | None) -> list[GoldResult]:
    """Do the work of `run_gold`, once."""
    settings = ctx.settings.gold
    graph = graph_of(settings)
    around = observed_builds(ctx.tables, graph)
    delta_rs = tables_to_merge(ctx.settings, ctx.settings.gold_engine)
    results = publish(
        ctx.tables, graph, names, versions=versions, max_threads=settings.max_threads, around=around, native=delta_rs
    )
    return finished_gold(ctx, graph, results, names)


def check_gold(ctx: JobContext, names: Sequence[str] = ()) -> list[CaseResult]:
    """Run the YAML test cases of gold.

    I/O: reads SQL and case files; runs the queries in Spark over the given rows; reads and writes no table.

    Args:
        ctx: From `open_context`.
        names: Nodes to test. Empty: all.

    Raises:
        ConfigurationError: A file is invalid, or a name has no SQL file.
    """
    graph = graph_of(ctx.settings.gold)
    selected = {name.removeprefix("gold.") for name in names}
    graph.order(names)  # raises for a name without a file
    folder = ctx.settings.gold.cases_folder
    cases = [case for case in load_cases(folder) if not selected or case.node in selected] if folder else []
    return [run_case(ctx.spark, graph, case) for case in cases]


def drop_gold(ctx: JobContext, names: Sequence[str]) -> list[TableName]:
    """Drop gold tables that no SQL file makes any more.

    I/O: removes the tables with their files. Calling again drops the rest.

    Args:
        ctx: From `open_context`.
        names: Tables to drop, with or without ``gold.``.

    Raises:
        ConfigurationError: A name is none of these tables. Nothing was dropped.
    """
    droppable = {table.name: table for table in gold_orphans(ctx)}
    selected = [name.removeprefix("gold.") for name in names]
    if unknown := [name for name in selected if name not in droppable]:
        raise ConfigurationError(
            f"gold.{unknown[0]} is not a table of Strandline without an SQL file{suggestion(unknown[0], droppable)}",
            next_step="remove its SQL file first; strandline gold --plan lists the tables",
        )
    for name in selected:
        discard(ctx.tables, droppable[name])
    return [droppable[name] for name in selected]
