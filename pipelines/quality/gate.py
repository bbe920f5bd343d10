"""Runs suites over the lake's tables, keeps what they found in ``control.quality``, and sets rows aside."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.errors import ConfigurationError, one_line
from pipelines.io.ddl import schema_of
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import QUALITY, QUALITY_DDL
from pipelines.model.tables import TableName
from pipelines.quality.expectations import Checker, known_expectations
from pipelines.quality.extent import Extent, extent_of
from pipelines.quality.quarantine import Quarantine
from pipelines.quality.results import Check, QualityReport, checked, rows
from pipelines.quality.rules import Expectation, Kind, Suite, parse_suites
from pipelines.quality.table_checks import TABLE_KINDS, check_table


def known_kinds() -> dict[str, Kind]:
    """Every expectation that a suite may name: Great Expectations' own, and the built-in ones about a table as a whole."""
    return {**known_expectations(), **TABLE_KINDS}


def load_suites(folder: Path) -> list[Suite]:
    """I/O: reads ``*.yml`` of *folder*. No folder, no suites.

    Raises:
        ConfigurationError: A file cannot be read; or whatever `parse_suites` finds.
    """
    try:
        files = {str(file): file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.yml"))}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigurationError(f"{folder} cannot be read: {why}", next_step="correct the file") from None
    return parse_suites(files, known_kinds())


@dataclass(frozen=True)
class Run:
    """One call: all its suites see the same version of a table. *accept*: what is seen is the new usual, drift and volume pass."""

    tables: Tables
    checker: Checker
    id: str
    now: datetime
    versions: Mapping[TableName, tuple[str, int]]
    accept: bool = False
    replay: bool = False

    def check(self, suite: Suite) -> list[Check]:
        """Check one suite, and set its failing rows aside or take them back where it asks for that.

        I/O: reads one pinned version, so that all expectations see the same rows while silver goes on being written; writes the quarantine.

        Returns:
            One result per expectation; all are ``error`` where the table is not there or Spark refuses the condition.
        """
        if suite.table not in self.versions:
            return [
                checked(suite, item, "error", {"error": f"{suite.table} is not there yet"})
                for item in suite.expectations
            ]
        table_id, version = self.versions[suite.table]
        try:
            extent = extent_of(self.tables, suite, table_id, version, replay=self.replay)
            oldest, newest = _positions(extent)
        except PySparkException as error:
            broken = [checked(suite, item, "error", {"error": one_line(error)}) for item in suite.expectations]
            return [replace(check, table_id=table_id, table_version=version) for check in broken]
        checks = [
            replace(
                check,
                table_id=table_id,
                table_version=version,
                scope=extent.scope,
                version_from=extent.version_from,
                position_from=oldest if extent.scope != "all" else None,
                position_to=newest,
            )
            for check in self._checks(suite, extent)
        ]
        if suite.on_failure == "quarantine":
            self._set_aside(suite, extent, checks)
        return checks

    def _checks(self, suite: Suite, extent: Extent) -> list[Check]:
        theirs = iter(self.checker.check(suite, extent.rows))
        return [
            self._table_check(suite, item, extent) if item.type in TABLE_KINDS else next(theirs)
            for item in suite.expectations
        ]

    def _table_check(self, suite: Suite, expectation: Expectation, extent: Extent) -> Check:
        before = None if self.accept else _last_passed(self.tables, suite, expectation)
        seen = check_table(expectation, extent.rows, before, self.now)
        return checked(suite, expectation, seen.outcome, seen.observed)

    def _set_aside(self, suite: Suite, extent: Extent, checks: Sequence[Check]) -> None:
        if any(check.outcome == "error" for check in checks):
            return  # which rows are good is not known, so none comes in and none is let go; the gate is closed
        failing: dict[str, list[str]] = {}
        for check in checks:
            for key in check.failing:
                failing.setdefault(key, []).append(check.reason)
        whole = self.tables.read(suite.table, version=extent.version)
        Quarantine(self.tables, suite.table).hold(
            suite.name, failing, whole, version=extent.version, run_id=self.id, at=self.now
        )


def versions_of(tables: Tables, names: Sequence[TableName]) -> dict[TableName, tuple[str, int]]:
    """I/O: id and newest version of those tables that are there."""
    return {name: (tables.id(name), tables.version(name)) for name in dict.fromkeys(names) if tables.exists(name)}


def record(tables: Tables, report: QualityReport) -> None:
    """I/O: one commit that appends the report's rows to ``control.quality``, which is created empty first."""
    schema = schema_of(QUALITY_DDL)
    tables.create(QUALITY, schema, comment="Outcome of every expectation of every quality run")
    if report.checks:
        found = tables.spark.createDataFrame(rows(report), schema)
        tables.append(QUALITY, found, options={"mergeSchema": "true"})  # a lake of an earlier version has fewer columns


def latest_run(recorded: DataFrame) -> DataFrame:
    """The rows of every suite's newest run: one for each of its expectations. Pure, lazy.

    Args:
        recorded: As ``control.quality``.
    """
    newest_first = Window.partitionBy("table", "suite").orderBy(F.col("ran_at").desc(), F.col("run_id"))
    ranked = recorded.where("NOT scope <=> 'quarantined'").withColumn("_rank", F.rank().over(newest_first))
    return ranked.where("_rank = 1").drop("_rank")


def release_orphans(tables: Tables, suites: Sequence[Suite], names: Iterable[TableName]) -> None:
    """I/O: of each silver table among *names*, takes back what only suites hold that are no more."""
    for name in sorted({name for name in names if name.layer == "silver"}):
        keeping = {suite.name for suite in suites if suite.table == name and suite.on_failure == "quarantine"}
        Quarantine(tables, name).keep_only(keeping)


def _positions(extent: Extent) -> tuple[str | None, str | None]:
    """The oldest and the newest position among the rows."""
    if "_position" not in extent.rows.columns:
        return None, None
    row = extent.rows.agg(F.min("_position"), F.max("_position")).first()
    assert row is not None  # an aggregate has one row
    return row[0], row[1]


def _last_passed(tables: Tables, suite: Suite, expectation: Expectation) -> Mapping[str, Any] | None:
    """What the expectation saw when it last passed."""
    if not tables.exists(QUALITY):
        return None
    same = (
        (F.col("suite") == suite.name)
        & (F.col("table") == str(suite.table))
        & (F.col("expectation") == expectation.type)
    )
    row = tables.read(QUALITY).where(same & F.col("success")).agg(F.max_by("observed", "ran_at")).first()
    return None if row is None or row[0] is None else json.loads(row[0])
