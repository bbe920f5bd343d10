"""Rows of control tables that are older than their retention, and that nothing needs any more, are removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.bronze.signal_rows import acted_upon
from pipelines.io.conflicts import LOST_RACES
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import CUTS, DEAD_LETTERS, NOTIFICATIONS, QUALITY, RECONCILE, SIGNALS
from pipelines.model.tables import TableName, literal, literals
from pipelines.model.timestamps import utc
from pipelines.quality.table_checks import TABLE_KINDS
from pipelines.settings.maintenance import MaintenanceSettings

_KEYS_AT_ONCE: Final = 1_000
_Conditions = Callable[[Tables, datetime], Iterator[str]]
"""Conditions, in SQL, of rows that may go; one commit for each."""


@dataclass(frozen=True)
class Retention:
    """How long each control table keeps its rows. Tables that are not named keep all of them.

    Args:
        now: UTC.
    """

    tables: Tables
    settings: MaintenanceSettings
    now: datetime

    @cached_property
    def _rules(self) -> dict[TableName, tuple[int | None, _Conditions]]:
        """Hours, and the rows that go after them."""
        settings = self.settings
        return {
            CUTS: (settings.cuts_retention_hours, _old_cuts),
            NOTIFICATIONS: (settings.notifications_retention_hours, _old_notifications),
            SIGNALS: (settings.signals_retention_hours, _old_signals),
            DEAD_LETTERS: (settings.dead_letters_retention_hours, _old_letters),
            QUALITY: (settings.quality_retention_hours, _old_results),
            RECONCILE: (settings.reconcile_retention_hours, _old_differences),
        }

    def run(self, table: TableName) -> tuple[int, str]:
        """I/O: deletes rows of *table*. Returns how many, and why some that are old enough stay, where a writer was at work."""
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


def _old_differences(_: Tables, before: datetime) -> Iterator[str]:
    yield f"at < {literal(before)}"


def _old_letters(_: Tables, before: datetime) -> Iterator[str]:
    yield f"status <> 'open' AND coalesce(replayed_at, at) < {literal(before)}"


def _old_cuts(tables: Tables, before: datetime) -> Iterator[str]:
    """The newest cut of each bronze table stays."""
    for row in tables.read(CUTS).groupBy("bronze").agg(F.max("published_at").alias("newest")).collect():
        yield f"bronze = {literal(row['bronze'])} AND published_at < {literal(min(before, utc(row['newest'])))}"


def _old_signals(tables: Tables, before: datetime) -> Iterator[str]:
    """A signal of the file channel stays: while its line is in the file, each capture would send it again."""
    is_old = (F.col("at") < F.lit(before)) & ~F.coalesce("channel", F.lit("table")).eqNullSafe("file")
    rows = tables.read(SIGNALS).where(is_old).select("id", "source").collect()
    bronzes = {table.name: table for table in tables.names("bronze")}
    for source, bronze in bronzes.items():
        keys = [row["id"] for row in rows if row["source"] == source or (row["source"] is None and len(bronzes) == 1)]
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            settled = acted_upon(tables, bronze, keys[start : start + _KEYS_AT_ONCE])
            if settled:
                yield f"id IN ({literals(sorted(settled))}) AND at < {literal(before)}"


def _old_results(tables: Tables, before: datetime) -> Iterator[str]:
    """Conditions on rows of old quality runs. The newest run of each suite stays, and so do all runs since each check that is held against
    its last pass has passed: `pipelines.quality` reads the history back to there, without a hole."""
    runs = F.col("ran_at")
    last = F.max(F.when(~F.col("scope").eqNullSafe("quarantined"), runs)).alias("last")
    found = (
        tables.read(QUALITY)
        .groupBy("table", "suite", "expectation")
        .agg(last, F.max(F.when(F.col("success"), runs)).alias("passed"))
    )
    checks: dict[tuple[str, str], list[Row]] = {}
    for row in found.collect():
        if row["last"] is not None:
            checks.setdefault((row["table"], row["suite"]), []).append(row)
    for (table, suite), of_suite in checks.items():
        newest = max(row["last"] for row in of_suite)
        compared = [row for row in of_suite if row["last"] == newest and row["expectation"] in TABLE_KINDS]
        needed = min([newest, *(row["passed"] for row in compared if row["passed"] is not None)])
        yield f"table = {literal(table)} AND suite = {literal(suite)} AND ran_at < {literal(min(before, utc(needed)))}"
