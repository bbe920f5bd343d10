"""Jobs of the quality gate: run suites of expectations over tables of the lake."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from strandline.errors import ConfigurationError
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.versions import with_fresh_versions
from strandline.jobs.context import JobContext
from strandline.jobs.gold.observed import observed_checks
from strandline.model.table_schemas import QUALITY, QUALITY_DDL
from strandline.quality.gate import QualityRun, latest_run, load_suites, record, release_orphans, versions_of
from strandline.quality.quarantine import Quarantine
from strandline.quality.quarantine_tables import tables_with_quarantine
from strandline.quality.results import QualityReport, raise_if_gate_closed
from strandline.quality.rules import Suite, select
from strandline.settings.output import QualitySettings

if TYPE_CHECKING:
    from strandline.quality.expectations import Checker

NO_SUITES: Final = (
    "no suites: write some into conf/quality, or name their folder in quality.suites_dir (strandline explain quality)"
)
"""Advice for a project without suites."""

_log = logging.getLogger("strandline.quality")
_SHOWN_COLUMNS = (
    "ran_at",
    "table",
    "suite",
    "expectation",
    "column",
    "outcome",
    "unexpected_count",
    "on_failure",
    "observed",
)


def run_quality(ctx: JobContext, names: Sequence[str] = (), *, accept: bool = False) -> QualityReport:
    """Run suites on their tables.

    I/O: reads suites and their tables; writes quarantines, then one row per expectation to ``control.quality``, then
    Data Docs. Raises last. Every call is a separate run, and calling again is safe.

    Args:
        ctx: From `open_context`.
        names: Suites (``flights``) or tables (``silver.flights``). Empty: all.
        accept: True: take the current volume and columns of the tables as the new baseline.

    Raises:
        ConfigurationError: The suite files are invalid (lists all problems). Nothing was checked.
        QualityGateClosed: A blocking expectation failed or a check broke. All results are written.
    """
    suites = suites_of(ctx.settings.quality)
    selected = select(suites, names)
    release_orphans(ctx.tables, suites, (suite.table for suite in selected))
    return _run_with_fresh_versions(ctx, selected, accept=accept)


def run_gold_gate(ctx: JobContext) -> QualityReport:
    """Run the gate before a gold build: all suites except suites on gold tables and on missing tables.

    The report contains the checked table versions. Build gold from these versions.

    I/O, raises: as `run_quality`.
    """
    suites = suites_of(ctx.settings.quality)
    release_orphans(ctx.tables, suites, (suite.table for suite in suites))
    return _run_with_fresh_versions(
        ctx, [suite for suite in suites if suite.table.layer != "gold" and ctx.tables.exists(suite.table)]
    )


def replay_quarantine(ctx: JobContext, names: Sequence[str] = ()) -> QualityReport:
    """Check quarantined rows again and release the rows that pass. The next gold build includes them.

    With empty *names*, also empty the quarantines of tables without a suite.

    I/O, raises: as `run_quality`.
    """
    suites = suites_of(ctx.settings.quality)
    if not names:
        release_orphans(ctx.tables, suites, tables_with_quarantine(ctx.tables))
    held = [suite for suite in select(suites, names) if suite.on_failure == "quarantine"]
    return _run_with_fresh_versions(
        ctx, [suite for suite in held if Quarantine(ctx.tables, suite.table).count(suite.name)], replay=True
    )


def latest_checks(ctx: JobContext) -> DataFrame:
    """Return the results of the newest run of each suite. Empty if no suite has run.

    I/O: reads ``control.quality``; lazy.
    """
    if not ctx.tables.exists(QUALITY):
        return ctx.spark.createDataFrame([], schema_of(QUALITY_DDL)).select(*_SHOWN_COLUMNS)
    return latest_run(ctx.tables.read(QUALITY)).select(*_SHOWN_COLUMNS)


def _run_with_fresh_versions(
    ctx: JobContext, suites: Sequence[Suite], *, accept: bool = False, replay: bool = False
) -> QualityReport:
    return with_fresh_versions(lambda: _run_suites(ctx, suites, accept=accept, replay=replay))


def _run_suites(ctx: JobContext, suites: Sequence[Suite], *, accept: bool, replay: bool) -> QualityReport:
    run_id, now, settings = uuid.uuid4().hex, datetime.now(UTC), ctx.settings.quality
    if not suites:
        return QualityReport(run_id, now, ())
    from strandline.quality.expectations import Checker  # why here: as in `known_kinds`

    checker = Checker(Path(settings.docs_dir), max_failing_rows=settings.max_quarantined_rows)
    versions = versions_of(ctx.tables, [suite.table for suite in suites])
    run = QualityRun(ctx.tables, checker, run_id, now, versions, accept, replay)
    with observed_checks(ctx.tables, suites) as checked:
        report = QualityReport(
            run_id,
            now,
            tuple(check for suite in suites for check in run.check(suite)),
            show_keys=ctx.settings.logging.show_keys,
        )
        record(ctx.tables, report)
        held = sum(Quarantine(ctx.tables, table).count() for table in versions if table.layer == "silver")
        report = replace(report, docs=_write_pages(checker, settings), held=held)
        checked(report)
        raise_if_gate_closed(report)
    return report


def _write_pages(checker: Checker, settings: QualitySettings) -> Path | None:
    """Write the Data Docs and return their index page.

    None: the folder cannot be written. That must not block gold, because ``control.quality`` has the results.
    """
    try:
        return checker.write_docs()
    except OSError as error:
        _log.warning(
            "quality.docs_dir %s cannot be written (%s): no pages; control.quality has the results",
            settings.docs_dir,
            error.strerror,
        )
        return None


def suites_of(settings: QualitySettings) -> list[Suite]:
    """Read the configured suites. No configured folder: no suites.

    I/O: reads the files in ``quality.suites_dir``; writes nothing.

    Raises:
        ConfigurationError: The configured folder does not exist, or a file is invalid (lists all problems).
    """
    configured = settings.suites_dir
    if configured is None:
        return []
    if not Path(configured).is_dir():  # a misspelt folder must not open the gate
        raise ConfigurationError(f"there is no folder {configured}", next_step="correct quality.suites_dir")
    return load_suites(Path(configured))
