"""Runs suites over the lake's tables and keeps what they found in ``control.quality``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import ConfigurationError
from pipelines.io.tables import Tables
from pipelines.quality.expectations import Checker, broken_suite
from pipelines.quality.results import QUALITY, SCHEMA, Check, QualityReport, rows
from pipelines.quality.rules import Suite, parse_suites


def load_suites(conf: Path, known: Mapping[str, Sequence[str]]) -> list[Suite]:
    """I/O: reads ``<conf>/quality/*.yml``. No folder, no suites.

    Raises:
        ConfigurationError: A file cannot be read; or whatever `parse_suites` finds.
    """
    try:
        files = {str(file): file.read_text(encoding="utf-8") for file in sorted((conf / "quality").glob("*.yml"))}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigurationError(f"{conf / 'quality'} cannot be read: {why}", next_step="correct the file") from None
    return parse_suites(files, known)


def check_suite(tables: Tables, checker: Checker, suite: Suite) -> list[Check]:
    """Check the newest version of the suite's table.

    I/O: reads one pinned version, so that all expectations see the same rows while silver goes on being written; writes nothing.

    Returns:
        One result per expectation; all are ``error`` where the table is not there or Spark refuses the condition.
    """
    if not tables.exists(suite.table):
        return broken_suite(suite, f"{suite.table} is not there yet")
    version = tables.version(suite.table)
    try:
        checked = tables.read(suite.table, version=version)
        checked = checked.where(suite.where) if suite.where else checked
        position_to = _newest_position(checked)
    except PySparkException as error:
        first_line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return [replace(check, table_version=version) for check in broken_suite(suite, first_line[:500])]
    return [replace(check, table_version=version, position_to=position_to) for check in checker.check(suite, checked)]


def record(tables: Tables, report: QualityReport) -> None:
    """I/O: one commit that appends the report's rows to ``control.quality``, which is created empty first."""
    tables.create(QUALITY, SCHEMA, comment="Outcome of every expectation of every quality run")
    if report.checks:
        tables.append(QUALITY, tables.spark.createDataFrame(rows(report), SCHEMA))


def _newest_position(checked: DataFrame) -> str | None:
    if "_position" not in checked.columns:
        return None
    row = checked.agg(F.max("_position")).first()
    return None if row is None or row[0] is None else str(row[0])
