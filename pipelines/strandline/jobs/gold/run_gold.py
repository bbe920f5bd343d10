"""Jobs that build and test gold, and drop its old tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from strandline.errors import ConfigurationError
from strandline.gold.case_runner import CaseResult, run_case
from strandline.gold.cases import load_cases
from strandline.gold.graph import Graph
from strandline.gold.orphans import advice
from strandline.gold.publish import GoldResult, publish
from strandline.gold.statement import suggestion
from strandline.io.tables.table_swap import discard
from strandline.io.tables.versions import with_fresh_versions
from strandline.io.telemetry.tracing import span
from strandline.jobs.context import JobContext
from strandline.jobs.gold.observed import observed_builds
from strandline.jobs.gold.planned import gold_orphans, graph_of, is_defined
from strandline.jobs.gold.quality import run_gold_gate
from strandline.jobs.gold.view_files import write_view_files
from strandline.jobs.lake_context import PipelineContext, tables_to_merge
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

_log = logging.getLogger("strandline.gold")


def refresh_gold(ctx: PipelineContext, names: Sequence[str] = ()) -> list[GoldResult]:
    """Run the quality gate, then build gold from the table versions that it checked.

    I/O: as `run_gold_gate`, then as `run_gold`. Without SQL files and suites, Spark is not needed.

    Raises:
        QualityGateClosed: A blocking expectation failed or a check broke. Gold is unchanged.
        ConfigurationError, VersionGone: As `run_gold`.
    """
    with span("gold run"):
        if not names and not is_defined(ctx.settings):
            return _finished(ctx, graph_of(ctx.settings.gold), [], names)
        by_spark = ctx.with_spark()
        return with_fresh_versions(lambda: _build(by_spark, names, run_gold_gate(by_spark).versions))


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
        return with_fresh_versions(lambda: _build(ctx, names, versions))


def _build(ctx: JobContext, names: Sequence[str], versions: Mapping[TableName, int] | None) -> list[GoldResult]:
    settings = ctx.settings.gold
    graph = graph_of(settings)
    around = observed_builds(ctx.tables, graph)
    delta_rs = tables_to_merge(ctx.settings, ctx.settings.gold_engine)
    results = publish(
        ctx.tables, graph, names, versions=versions, max_threads=settings.max_threads, around=around, native=delta_rs
    )
    return _finished(ctx, graph, results, names)


def _finished(ctx: PipelineContext, graph: Graph, results: list[GoldResult], names: Sequence[str]) -> list[GoldResult]:
    """I/O: writes the files of views. Return *results*, and without *names* the tables whose SQL file is gone."""
    write_view_files(ctx, graph, results)
    if not names:
        results += [GoldResult(orphan.name, "table", "orphaned", reason=advice(orphan)) for orphan in gold_orphans(ctx)]
    for result in results:
        _log.log(
            logging.WARNING if result.status == "failed" else logging.INFO,
            "gold.%s %s: %s",
            result.name,
            result.status,
            result.reason,
        )
    return results


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
