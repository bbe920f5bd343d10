"""The way from silver to gold."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pipelines.gold.case_runner import CaseResult, run_case
from pipelines.gold.cases import load_cases
from pipelines.gold.graph import Graph
from pipelines.gold.publish import GoldResult, PlannedBuild, load_graph, plan, publish
from pipelines.io.versions import with_fresh_versions
from pipelines.jobs.context import JobContext
from pipelines.jobs.gold.quality import run_gold_gate
from pipelines.model.tables import TableName
from pipelines.settings.output import GoldSettings

NO_GOLD: Final = "no SQL files: write some into conf/gold, or name their folder in gold.sql_dir (docs/gold.md)"
"""Advice for a project without gold."""
NO_CASES: Final = (
    "no cases: write some into `tests` beside the SQL files, or name their folder in gold.tests_dir (docs/gold.md)"
)
"""Advice for a project without cases of gold."""

_log = logging.getLogger("strandline.gold")


def refresh_gold(ctx: JobContext, names: Sequence[str] = ()) -> list[GoldResult]:
    """The quality gate, then gold from exactly the versions that it checked.

    Raises:
        QualityGateClosed: Gold stays as it is. Everything that `run_gold` raises, too.
    """
    return with_fresh_versions(lambda: _build(ctx, names, run_gold_gate(ctx).versions))


def run_gold(
    ctx: JobContext, names: Sequence[str] = (), *, versions: Mapping[TableName, int] | None = None
) -> list[GoldResult]:
    """Build the gold views and tables whose inputs or SQL changed, in dependency order.

    I/O: reads silver (and whatever layer the SQL files name); writes gold. Idempotent.

    Args:
        ctx: From `open_context`.
        names: Only these and what they read in gold; empty: all.
        versions: Tables to be read at these versions; others: the newest.

    Returns:
        One result per node: built, unchanged, skipped or failed, with the reason. A failed one blocks just its descendants.

    Raises:
        ConfigurationError: The SQL files are wrong (all problems at once), or a name has no file. Nothing was built.
        VersionGone: Delta no longer shows one of *versions*. The nodes that do not read it are built.
    """
    return with_fresh_versions(lambda: _build(ctx, names, versions))


def _build(ctx: JobContext, names: Sequence[str], versions: Mapping[TableName, int] | None) -> list[GoldResult]:
    settings = ctx.settings.gold
    results = publish(ctx.tables, graph_of(settings), names, versions=versions, max_threads=settings.max_threads)
    for result in results:
        _log.log(
            logging.WARNING if result.status == "failed" else logging.INFO,
            "gold.%s %s: %s",
            result.name,
            result.status,
            result.reason,
        )
    return results


def plan_gold(ctx: JobContext, names: Sequence[str] = ()) -> list[PlannedBuild]:
    """What `run_gold` would do, and why. I/O: reads; writes nothing."""
    return plan(ctx.tables, graph_of(ctx.settings.gold), names, max_threads=ctx.settings.gold.max_threads)


def graph_of(settings: GoldSettings) -> Graph:
    """I/O: reads the SQL files that *settings* name."""
    return load_graph(Path(settings.sql_dir) if settings.sql_dir else None)


def check_gold(ctx: JobContext, names: Sequence[str] = ()) -> list[CaseResult]:
    """Run the YAML cases beside the SQL files.

    I/O: reads both; runs in Spark over the rows that the cases give; touches no table.

    Raises:
        ConfigurationError: A file is wrong, or a name has no view or table.
    """
    settings = ctx.settings.gold
    graph = graph_of(settings)
    wanted = {name.removeprefix("gold.") for name in names}
    graph.order(names)  # refuses a name that has no file
    folder = settings.tests_dir or (Path(settings.sql_dir) / "tests" if settings.sql_dir else None)
    cases = [case for case in load_cases(Path(folder)) if not wanted or case.node in wanted] if folder else []
    return [run_case(ctx.spark, graph, case) for case in cases]
