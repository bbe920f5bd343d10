"""Results of a quality run: rows for ``control.quality``, and the decision to close the gate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from strandline.errors import QualityGateClosed
from strandline.model.bson.merge_key import key_name
from strandline.model.table_schemas import QUALITY
from strandline.model.tables import TableName
from strandline.quality.rules import Expectation, Suite
from strandline.quality.table_checks import observation_summary

Outcome = Literal["passed", "failed", "error"]

_MAX_KEYS_SHOWN = 3  # named in a message; control.quality and the pages show more


@dataclass(frozen=True)
class CheckResult:
    """Result of one expectation.

    Outcome ``error``: the check itself broke (a missing column, a wrong type), so nothing is known about the rows.
    *kwargs* and *observed* are JSON. The fields from *table_id* on describe the checked rows: columns of
    ``control.quality``.
    """

    table: TableName
    suite: str
    expectation: str
    column: str | None
    kwargs: str
    outcome: Outcome
    observed: str
    unexpected_count: int | None
    on_failure: str
    failing: tuple[str, ...] = ()
    """Keys of all failing rows. Empty unless the suite quarantines rows."""
    suite_hash: str = ""
    table_id: str | None = None
    table_version: int | None = None
    scope: str = "all"
    version_from: int | None = None
    position_from: str | None = None
    position_to: str | None = None

    @property
    def closes_gate(self) -> bool:
        """Return True if the check blocks gold: a blocking expectation failed, or a check broke.

        A broken check does not show which rows are good. With ``on_failure: warn`` it does not close the gate.
        """
        unknown = self.outcome == "error" and self.on_failure != "warn"
        return unknown or (self.outcome == "failed" and self.on_failure == "block")

    @property
    def reason(self) -> str:
        return f"{self.expectation}{f'({self.column})' if self.column else ''}"

    def observation_summary(self, *, show_keys: bool) -> str:
        """Return one line: table, expectation, column, outcome and the first failing rows, named by `key_name`."""
        rows = json.loads(self.observed).get("rows") or ()
        seen = observation_summary(self.expectation, self.observed) if self.outcome == "failed" else ""
        if rows:
            count = self.unexpected_count or len(rows)
            which = "1 row: " if count == 1 else f"{count:,} rows{', such as' if count > _MAX_KEYS_SHOWN else ':'} "
            seen = f"for {which}{', '.join(key_name(str(row), show=show_keys) for row in rows[:_MAX_KEYS_SHOWN])}"
        return f"{self.table} {self.reason} {self.outcome} {seen}".rstrip()


@dataclass(frozen=True)
class QualityReport:
    """Result of one quality run.

    *docs*: index page of the Data Docs; None: no suite ran, or the pages could not be written.
    *held*: number of rows in quarantine after the run.
    """

    run_id: str
    ran_at: datetime
    checks: tuple[CheckResult, ...]
    docs: Path | None = None
    held: int = 0
    show_keys: bool = False
    """Rows at fault are told by their keys, not by the keys' hashes."""

    @property
    def versions(self) -> dict[TableName, int]:
        """Return the checked version of each table."""
        return {check.table: check.table_version for check in self.checks if check.table_version is not None}

    @property
    def success(self) -> bool:
        return all(check.outcome == "passed" for check in self.checks)

    def summary(self) -> str:
        """Return one line of text: number of passed expectations, all other results, and the path of the pages."""
        others = [check for check in self.checks if check.outcome != "passed"]
        text = f"{len(self.checks) - len(others)} of {len(self.checks)} expectations passed"
        shown = "; ".join(check.observation_summary(show_keys=self.show_keys) for check in others)
        shown = f": {shown}" if shown else ""
        held = f"; {self.held:,} rows in quarantine" if self.held else ""
        return text + shown + held + (f"; pages: {self.docs}" if self.docs else "")


def new_check(
    suite: Suite, expectation: Expectation, outcome: Outcome, observed: Mapping[str, Any], count: int | None = None
) -> CheckResult:
    """Return the result of one expectation of *suite*."""
    return CheckResult(
        table=suite.table,
        suite=suite.name,
        expectation=expectation.type,
        column=expectation.column,
        kwargs=_json(expectation.arguments),
        outcome=outcome,
        observed=_json(observed),
        unexpected_count=count,
        on_failure=suite.on_failure,
        suite_hash=suite.fingerprint,
    )


def as_error(check: CheckResult, reason: str) -> CheckResult:
    """Return *check* with outcome ``error`` and *reason*."""
    return replace(check, outcome="error", observed=_json({"error": reason}))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), default=str, sort_keys=True, ensure_ascii=False)


def report_rows(report: QualityReport) -> list[dict[str, object]]:
    """Return the results as rows of ``control.quality``: values by column name."""
    run = {"run_id": report.run_id, "ran_at": report.ran_at}
    return [
        {**_values(check), "table": str(check.table), "success": check.outcome == "passed", **run}
        for check in report.checks
    ]


def _values(check: CheckResult) -> dict[str, object]:
    return {field.name: getattr(check, field.name) for field in fields(check) if field.name != "failing"}


def raise_if_gate_closed(report: QualityReport) -> None:
    """Raise if a blocking expectation did not pass.

    Raises:
        QualityGateClosed: Names the first three. Results and Data Docs are already written; gold must stay unchanged.
    """
    closed = [check for check in report.checks if check.closes_gate]
    if closed:
        raise QualityGateClosed(
            _summary(closed, show_keys=report.show_keys),
            next_step=f"see {report.docs or QUALITY}, correct the source, then run again: strandline quality run",
            is_broken=any(check.outcome == "error" for check in closed),
        )


def _summary(closed: Sequence[CheckResult], *, show_keys: bool) -> str:
    shown = ", ".join(check.observation_summary(show_keys=show_keys) for check in closed[:3])
    more = ", …" if len(closed) > 3 else ""
    return f"{len(closed)} blocking expectation{'s' if len(closed) > 1 else ''} did not pass: {shown}{more}"
