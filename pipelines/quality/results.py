"""What a run of suites found: rows for ``control.quality``, and whether the gate stays open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pyspark.sql import types as T

from pipelines.errors import QualityGateClosed
from pipelines.model.tables import TableName

QUALITY = TableName("control", "quality")

_TEXT = T.StringType()
SCHEMA = T.StructType(
    [
        T.StructField("run_id", _TEXT),
        T.StructField("ran_at", T.TimestampType()),
        T.StructField("table", _TEXT),
        T.StructField("table_version", T.LongType()),
        T.StructField("position_from", _TEXT),
        T.StructField("position_to", _TEXT),
        T.StructField("suite", _TEXT),
        T.StructField("expectation", _TEXT),
        T.StructField("column", _TEXT),
        T.StructField("kwargs", _TEXT),
        T.StructField("success", T.BooleanType()),
        T.StructField("outcome", _TEXT),
        T.StructField("observed", _TEXT),
        T.StructField("unexpected_count", T.LongType()),
        T.StructField("on_failure", _TEXT),
    ]
)


@dataclass(frozen=True)
class Check:
    """One expectation, checked. ``error``: the check itself broke (a missing column, a wrong type), so nothing is known about the rows.

    *kwargs* and *observed* are JSON. *position_from* is exclusive and None where the whole table was checked; *position_to* is the
    newest position among the rows checked.
    """

    table: str
    suite: str
    expectation: str
    column: str | None
    kwargs: str
    outcome: Literal["passed", "failed", "error"]
    observed: str
    unexpected_count: int | None
    on_failure: str
    table_version: int | None = None
    position_from: str | None = None
    position_to: str | None = None

    @property
    def closes_gate(self) -> bool:
        """A blocking check that broke closes the gate, too: it has not shown that the rows are good."""
        return self.on_failure == "block" and self.outcome != "passed"

    def short(self) -> str:
        """Table, expectation, column and outcome in a few words."""
        return f"{self.table} {self.expectation}{f'({self.column})' if self.column else ''} {self.outcome}"


@dataclass(frozen=True)
class QualityReport:
    """One run. *docs* is the index page of its Data Docs (None where no suite was run)."""

    run_id: str
    ran_at: datetime
    checks: tuple[Check, ...]
    docs: Path | None = None

    @property
    def success(self) -> bool:
        return all(check.outcome == "passed" for check in self.checks)

    def summary(self) -> str:
        """One line: how many passed, what did not, where the pages are."""
        others = [check for check in self.checks if check.outcome != "passed"]
        text = f"{len(self.checks) - len(others)} of {len(self.checks)} expectations passed"
        shown = "; ".join(check.short() for check in others)
        return text + (f": {shown}" if shown else "") + (f"; pages: {self.docs}" if self.docs else "")


def rows(report: QualityReport) -> list[tuple[object, ...]]:
    """The report as rows of `SCHEMA`."""
    return [
        (
            report.run_id,
            report.ran_at,
            check.table,
            check.table_version,
            check.position_from,
            check.position_to,
            check.suite,
            check.expectation,
            check.column,
            check.kwargs,
            check.outcome == "passed",
            check.outcome,
            check.observed,
            check.unexpected_count,
            check.on_failure,
        )
        for check in report.checks
    ]


def hold_gate(report: QualityReport) -> None:
    """Raise if a blocking expectation did not pass.

    Raises:
        QualityGateClosed: Names the first ones. Rows and Data Docs are written by then; gold is to stay as it is.
    """
    closed = [check for check in report.checks if check.closes_gate]
    if closed:
        raise QualityGateClosed(
            _summary(closed), next_step=f"see {report.docs or QUALITY}, correct the source, then run again: strandline quality run"
        )


def _summary(closed: Sequence[Check]) -> str:
    shown = ", ".join(check.short() for check in closed[:3])
    return f"{len(closed)} blocking expectation{'s' if len(closed) > 1 else ''} did not pass: {shown}{', …' if len(closed) > 3 else ''}"
