"""Refresh of gold: the quality gate, then the build. Without SQL files and suites it needs no Spark."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from strandline.errors import ConfigurationError, install_command
from strandline.gold.graph import Graph
from strandline.gold.orphans import advice
from strandline.gold.results import GoldResult
from strandline.io.tables.versions import with_fresh_versions
from strandline.io.telemetry.tracing import span
from strandline.jobs.gold.planned import gold_orphans, graph_of, is_defined
from strandline.jobs.gold.view_files import write_view_files
from strandline.jobs.lake_context import PipelineContext

_log: Final = logging.getLogger("strandline.gold")


def refresh_gold(ctx: PipelineContext, names: Sequence[str] = ()) -> list[GoldResult]:
    """Run the quality gate, then build gold from the table versions that it checked.

    I/O: as `run_gold_gate`, then as `run_gold`.

    Raises:
        QualityGateClosed: A blocking expectation failed or a check broke. Gold is unchanged.
        ConfigurationError: As `run_gold`, or PySpark is not installed.
        VersionGone: As `run_gold`.
    """
    with span("gold run"):
        if not names and not is_defined(ctx.settings):
            return finished_gold(ctx, graph_of(ctx.settings.gold), [], names)
        if find_spec("pyspark") is None:
            raise ConfigurationError(
                "gold and the checks of tables need pyspark, which is not installed; bronze and silver need it not",
                next_step=install_command("spark"),
            )
        from strandline.jobs.gold.quality import run_gold_gate  # imports PySpark
        from strandline.jobs.gold.run_gold import build_gold

        by_spark = ctx.with_spark()
        return with_fresh_versions(lambda: build_gold(by_spark, names, run_gold_gate(by_spark).versions))


def finished_gold(
    ctx: PipelineContext, graph: Graph, results: list[GoldResult], names: Sequence[str]
) -> list[GoldResult]:
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
