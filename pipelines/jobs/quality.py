"""The quality gate: suites of expectations over the lake's tables."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pipelines.jobs.context import JobContext
from pipelines.quality.expectations import Checker, known_expectations
from pipelines.quality.gate import check_suite, load_suites, record
from pipelines.quality.results import QualityReport, hold_gate
from pipelines.quality.rules import select


def run_quality(ctx: JobContext, names: Sequence[str] = (), conf: Path = Path("conf")) -> QualityReport:
    """Check the tables that have a suite.

    I/O: reads ``<conf>/quality/*.yml`` and the tables they name; appends one row per expectation to ``control.quality``, then writes Data
    Docs, then raises if a blocking expectation did not pass. Every call is a run of its own.

    Args:
        ctx: From `open_context`.
        names: Suites (``flights``) or tables (``silver.flights``); empty: all.
        conf: The folder that holds ``quality/``.

    Raises:
        ConfigurationError: The files are wrong, all problems at once; nothing was checked.
        QualityGateClosed: After rows and docs are written.
    """
    suites = select(load_suites(conf, known_expectations()), names)
    checker = Checker(Path(ctx.settings.quality.docs_dir))
    checks = tuple(check for suite in suites for check in check_suite(ctx.tables, checker, suite))
    report = QualityReport(uuid.uuid4().hex, datetime.now(UTC), checks)
    record(ctx.tables, report)
    if suites:
        report = replace(report, docs=checker.write_docs())
    hold_gate(report)
    return report
