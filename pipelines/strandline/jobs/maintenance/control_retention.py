"""Retention of control tables: delete rows that are too old, unless something still needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from pyspark.sql import Row
from pyspark.sql import functions as F

from strandline.bronze.signal_rows import acted_upon
from strandline.io.spark.conflicts import LOST_RACES
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import CUTS, DEAD_LETTERS, NOTIFICATIONS, QUALITY, RECONCILE, SIGNALS
from strandline.model.tables import TableName, literal, literals
from strandline.model.timestamps import utc
from strandline.quality.table_checks import TABLE_KINDS
from strandline.settings.maintenance import MaintenanceSettings

_KEYS_PER_COMMIT: Final = 1_000
_Conditions = Callable[[Tables, datetime], Iterator[str]]
"""Yields SQL conditions on the rows to delete. Each condition is one commit."""


@dataclass(frozen=True)
class Retention:
    """Retention rules of the control tables. Tables without a rule keep all rows."""

    tables: Tables
    settings: MaintenanceSettings
    now: datetime
    """UTC."""

    @cached_property
    def _rules(self) -> dict[TableName, tuple[int | None, _Conditions]]:
        """Retention in hours (None: for ever) and the conditions on rows that may be deleted after it."""
        settings = self.settings
        return {
            CUTS: (settings.cuts_retention_hours, _old_cuts),
            NOTIFICATIONS: (settings.notifications_retention_hours, _old_notifications),
            SIGNALS: (settings.signals_retention_hours, _old_signals),
            DEAD_LETTERS: (settings.dead_letters_retention_hours, _old_dead_letters),
            QUALITY: (settings.quality_retention_hours, _old_quality_results),
            RECONCILE: (settings.reconcile_retention_hours, _old_reconcile_rows),
        }

    def run(self, table: TableName) -> tuple[int, str]:
        """Delete old rows of *table*.

        Returns:
            The number of deleted rows, and a note if a concurrent writer prevented the rest; empty otherwise.
        """
        hours, conditions = self._rules.get(table) or (None, None)
        if hours is None or conditions is None:
            return 0, ""
        removed = 0
        try:
            for condition in conditions(self.tables, self.now - timedelta(hours=hours)):
                removed += self.tables.delete(table, condition)
        except LOST_RACES:
            return removed, "a writer was at work: old rows are removed another time"
        return removed, ""


def _old_notifications(_: Tables, before: datetime) -> Iterator[str]:
    yield f"timestamp < {literal(before)}"


def _old_reconcile_rows(_: Tables, before: datetime) -> Iterator[str]:
    yield f"at < {literal(before)}"


def _old_dead_letters(_: Tables, before: datetime) -> Iterator[str]:
    yield f"status <> 'open' AND coalesce(replayed_at, at) < {literal(before)}"


def _old_cuts(tables: Tables, before: datetime) -> Iterator[str]:
    """Keep the newest cut of each bronze table."""
    for row in tables.read(CUTS).groupBy("bronze").agg(F.max("published_at").alias("newest")).collect():
        yield f"bronze = {literal(row['bronze'])} AND published_at < {literal(min(before, utc(row['newest'])))}"


def _old_signals(tables: Tables, before: datetime) -> Iterator[str]:
    """Keep signals of the file channel: capture would read the line from the file again. Keep unprocessed signals."""
    is_old = (F.col("at") < F.lit(before)) & ~F.coalesce("channel", F.lit("table")).eqNullSafe("file")
    rows = tables.read(SIGNALS).where(is_old).select("id", "source").collect()
    bronzes = {table.name: table for table in tables.names("bronze")}
    for source, bronze in bronzes.items():
        keys = [row["id"] for row in rows if row["source"] == source or (row["source"] is None and len(bronzes) == 1)]
        for start in range(0, len(keys), _KEYS_PER_COMMIT):
            processed = acted_upon(tables, bronze, keys[start : start + _KEYS_PER_COMMIT])
            if processed:
                yield f"id IN ({literals(sorted(processed))}) AND at < {literal(before)}"


def _old_quality_results(tables: Tables, before: datetime) -> Iterator[str]:
    """Keep the newest run of each suite, and every run since each table check last passed.

    Table checks compare with their last passed run, so `strandline.quality` needs all runs from there on.
    """
    ran_at = F.col("ran_at")
    last = F.max(F.when(~F.col("scope").eqNullSafe("quarantined"), ran_at)).alias("last")
    old_results = (
        tables.read(QUALITY)
        .groupBy("table", "suite", "expectation")
        .agg(last, F.max(F.when(F.col("success"), ran_at)).alias("passed"))
    )
    checks: dict[tuple[str, str], list[Row]] = {}
    for row in old_results.collect():
        if row["last"] is not None:
            checks.setdefault((row["table"], row["suite"]), []).append(row)
    for (table, suite), suite_checks in checks.items():
        newest = max(row["last"] for row in suite_checks)
        compared = [row for row in suite_checks if row["last"] == newest and row["expectation"] in TABLE_KINDS]
        needed = min([newest, *(row["passed"] for row in compared if row["passed"] is not None)])
        yield f"table = {literal(table)} AND suite = {literal(suite)} AND ran_at < {literal(min(before, utc(needed)))}"
