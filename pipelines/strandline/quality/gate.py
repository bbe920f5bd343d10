"""Run suites, store their results in ``control.quality``, and put failing rows into quarantine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from strandline.errors import ConfigurationError, install_command, one_line
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import QUALITY, QUALITY_DDL
from strandline.model.tables import TableName
from strandline.quality.check_scope import CheckScope, check_scope
from strandline.quality.quarantine import Quarantine
from strandline.quality.results import CheckResult, QualityReport, new_check, report_rows
from strandline.quality.rules import Expectation, ExpectationKind, Suite, parse_suites
from strandline.quality.table_checks import TABLE_KINDS, check_table

if TYPE_CHECKING:
    from strandline.quality.expectations import Checker


def known_kinds() -> dict[str, ExpectationKind]:
    """Return every expectation that a suite may use: those of Great Expectations and the built-in table checks.

    Raises:
        ConfigurationError: Great Expectations is not installed.
    """
    try:
        # why here: the library takes seconds to import and 200 MB, and a project without suites does not need it
        from strandline.quality.expectations import known_expectations
    except ModuleNotFoundError as error:
        if error.name != "great_expectations":
            raise
        raise ConfigurationError(
            "there are suites of expectations, and Great Expectations is not installed",
            next_step=install_command("quality"),
        ) from None

    return {**known_expectations(), **TABLE_KINDS}


def load_suites(folder: Path) -> list[Suite]:
    """Read and parse every ``*.yml`` file of *folder*. A missing folder has no suites.

    I/O: reads the files; writes nothing.

    Raises:
        ConfigurationError: A file cannot be read, or `parse_suites` finds a problem.
    """
    try:
        files = {str(file): file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.yml"))}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigurationError(f"{folder} cannot be read: {why}", next_step="correct the file") from None
    return parse_suites(files, known_kinds()) if files else []


@dataclass(frozen=True)
class QualityRun:
    """One quality run. All its suites check the same version of a table.

    *versions*: table id and version by table. *accept*: True: take current volume and columns as the new baseline.
    *replay*: True: check only rows in quarantine.
    """

    tables: Tables
    checker: Checker
    id: str
    now: datetime
    versions: Mapping[TableName, tuple[str, int]]
    accept: bool = False
    replay: bool = False

    def check(self, suite: Suite) -> list[CheckResult]:
        """Check one suite. With ``on_failure: quarantine``, also update the quarantine of its table.

        I/O: reads one pinned version, so all expectations see the same rows; writes the quarantine.

        Returns:
            One result per expectation. All are ``error`` if the table is missing or Spark rejects the condition.
        """
        if suite.table not in self.versions:
            return [
                new_check(suite, item, "error", {"error": f"{suite.table} is not there yet"})
                for item in suite.expectations
            ]
        table_id, version = self.versions[suite.table]
        try:
            scope = check_scope(self.tables, suite, table_id, version, replay=self.replay)
            oldest, newest = _position_range(scope)
        except PySparkException as error:
            broken = [new_check(suite, item, "error", {"error": one_line(error)}) for item in suite.expectations]
            return [replace(check, table_id=table_id, table_version=version) for check in broken]
        checks = [
            replace(
                check,
                table_id=table_id,
                table_version=version,
                scope=scope.kind,
                version_from=scope.version_from,
                position_from=oldest if scope.kind != "all" else None,
                position_to=newest,
            )
            for check in self._checks(suite, scope)
        ]
        if suite.on_failure == "quarantine":
            self._update_quarantine(suite, scope, checks)
        return checks

    def _checks(self, suite: Suite, scope: CheckScope) -> list[CheckResult]:
        library_checks = iter(self.checker.check(suite, scope.rows))
        return [
            self._table_check(suite, item, scope) if item.type in TABLE_KINDS else next(library_checks)
            for item in suite.expectations
        ]

    def _table_check(self, suite: Suite, expectation: Expectation, scope: CheckScope) -> CheckResult:
        before = None if self.accept else _last_passed_observation(self.tables, suite, expectation)
        try:
            seen = check_table(expectation, scope.rows, before, self.now)
        except (PySparkException, ValueError, TypeError) as error:  # a missing column, an argument that is no number
            return new_check(suite, expectation, "error", {"error": one_line(error)})
        return new_check(suite, expectation, seen.outcome, seen.observed)

    def _update_quarantine(self, suite: Suite, scope: CheckScope, checks: Sequence[CheckResult]) -> None:
        if any(check.outcome == "error" for check in checks):
            return  # good rows are unknown: keep the quarantine as it is; the gate closes
        failing: dict[str, list[str]] = {}
        for check in checks:
            for key in check.failing:
                failing.setdefault(key, []).append(check.reason)
        all_rows = self.tables.read(suite.table, version=scope.version)
        Quarantine(self.tables, suite.table).replace_rows(
            suite.name, failing, all_rows, version=scope.version, run_id=self.id, at=self.now
        )


def versions_of(tables: Tables, names: Sequence[TableName]) -> dict[TableName, tuple[str, int]]:
    """Return the id and newest version of each existing table in *names*.

    I/O: reads table metadata; writes nothing.
    """
    return {name: (tables.id(name), tables.version(name)) for name in dict.fromkeys(names) if tables.exists(name)}


def record(tables: Tables, report: QualityReport) -> None:
    """Append the results of *report* to ``control.quality``. Create the empty table first.

    I/O: writes one commit. Not idempotent: a second call appends the rows again.
    """
    schema = schema_of(QUALITY_DDL)
    tables.create(QUALITY, schema, comment="Outcome of every expectation of every quality run")
    if report.checks:
        rows = tables.spark.createDataFrame(report_rows(report), schema)
        tables.append(QUALITY, rows)


def latest_run(recorded: DataFrame) -> DataFrame:
    """Return the rows of the newest run of each suite: one row per expectation. Pure, lazy.

    Runs over quarantined rows only (replays) are left out.

    Args:
        recorded: Rows with the schema of ``control.quality``.
    """
    newest_first = Window.partitionBy("table", "suite").orderBy(F.col("ran_at").desc(), F.col("run_id"))
    ranked = recorded.where("NOT scope <=> 'quarantined'").withColumn("_rank", F.rank().over(newest_first))
    return ranked.where("_rank = 1").drop("_rank")


def release_orphans(tables: Tables, suites: Sequence[Suite], names: Iterable[TableName]) -> None:
    """Release rows from quarantine if their suite no longer exists or no longer quarantines rows.

    I/O: writes at most one commit per silver table in *names*. Idempotent.
    """
    for name in sorted({name for name in names if name.layer == "silver"}):
        keeping = {suite.name for suite in suites if suite.table == name and suite.on_failure == "quarantine"}
        Quarantine(tables, name).release_other_suites(keeping)


def _position_range(scope: CheckScope) -> tuple[str | None, str | None]:
    """Return the smallest and largest position of the rows to check. None: no rows, or no ``_position`` column."""
    if "_position" not in scope.rows.columns:
        return None, None
    row = scope.rows.agg(F.min("_position"), F.max("_position")).first()
    assert row is not None  # an aggregate has one row
    return row[0], row[1]


def _last_passed_observation(tables: Tables, suite: Suite, expectation: Expectation) -> Mapping[str, Any] | None:
    """Return the observation of the last run in which the expectation passed. None: it never passed."""
    if not tables.exists(QUALITY):
        return None
    same = (
        (F.col("suite") == suite.name)
        & (F.col("table") == str(suite.table))
        & (F.col("expectation") == expectation.type)
    )
    row = tables.read(QUALITY).where(same & F.col("success")).agg(F.max_by("observed", "ran_at")).first()
    return None if row is None or row[0] is None else json.loads(row[0])
