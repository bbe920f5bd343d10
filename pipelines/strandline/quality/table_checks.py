"""Built-in table checks: freshness, volume and schema drift.

Great Expectations lacks them, because they need the current time and the results of earlier runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.model.timestamps import utc
from strandline.quality.rules import Expectation, ExpectationKind

FRESH, VOLUME, DRIFT = (
    "expect_table_to_be_fresh",
    "expect_table_volume_to_be_usual",
    "expect_table_schema_to_be_unchanged",
)

TABLE_KINDS: Mapping[str, ExpectationKind] = {
    FRESH: ExpectationKind(("column", "max_age"), "table", ("max_age",)),
    VOLUME: ExpectationKind(("max_change_percent", "min_rows"), "table", ("max_change_percent",)),
    DRIFT: ExpectationKind((), "table"),
}

_AGE = re.compile(r"(\d+) ?(s|m|h|d)\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Observation:
    """Result of a table check. If it passed, *observed* is the baseline of the next run."""

    outcome: Literal["passed", "failed", "error"]
    observed: Mapping[str, Any]


def check_table(
    expectation: Expectation, rows: DataFrame, before: Mapping[str, Any] | None, now: datetime
) -> Observation:
    """Run one built-in table check.

    I/O: runs at most one aggregate over *rows*; writes nothing.

    Args:
        expectation: Its type must be in `TABLE_KINDS`.
        before: Observation of the last run that passed or was accepted. None: there is no such run.
        now: Current time, with time zone.
    """
    if expectation.type == FRESH:
        return _fresh(
            rows, str(expectation.arguments.get("column", "_cluster_time")), str(expectation.arguments["max_age"]), now
        )
    if expectation.type == VOLUME:
        return _volume(rows.count(), expectation.arguments, before)
    return _drift({field.name: field.dataType.simpleString() for field in rows.schema.fields}, before)


def _fresh(rows: DataFrame, column: str, max_age: str, now: datetime) -> Observation:
    match = _AGE.match(max_age)
    if match is None:
        return Observation("error", {"error": f"max_age: {max_age} is no time such as 90s, 30m, 6h, 2d"})
    row = rows.agg(F.max(column)).first()
    newest = None if row is None else row[0]
    if newest is None:
        return Observation("failed", {"newest": None})
    if not isinstance(newest, datetime):
        return Observation("error", {"error": f"{column} is no TIMESTAMP"})
    age = now - utc(newest)
    fresh = age <= timedelta(**{_UNITS[match[2]]: int(match[1])})
    return Observation(
        "passed" if fresh else "failed", {"newest": utc(newest).isoformat(), "age_seconds": int(age.total_seconds())}
    )


def _volume(count: int, arguments: Mapping[str, Any], before: Mapping[str, Any] | None) -> Observation:
    usual = None if before is None else int(before["row_count"])
    change = 0.0 if not usual else round(100.0 * abs(count - usual) / usual, 1)
    good = count >= int(arguments.get("min_rows", 0)) and change <= float(arguments["max_change_percent"])
    return Observation(
        "passed" if good else "failed", {"row_count": count, "usual_row_count": usual, "change_percent": change}
    )


def _drift(columns: Mapping[str, str], before: Mapping[str, Any] | None) -> Observation:
    earlier_columns: Mapping[str, str] = columns if before is None else before["columns"]
    changes = {
        "added": sorted(columns.keys() - earlier_columns.keys()),
        "removed": sorted(earlier_columns.keys() - columns.keys()),
        "retyped": sorted(
            name for name in columns.keys() & earlier_columns.keys() if columns[name] != earlier_columns[name]
        ),
    }
    return Observation("failed" if any(changes.values()) else "passed", {"columns": dict(columns), **changes})


def observation_summary(expectation: str, observed: str) -> str:
    """Return a short text about the observation of a built-in table check; empty for any other expectation."""
    seen = json.loads(observed)
    if expectation == FRESH:
        return f"newest {seen.get('newest')}"
    if expectation == VOLUME:
        return f"{seen.get('row_count')} rows, usual {seen.get('usual_row_count')}"
    if expectation == DRIFT:
        return ", ".join(f"{what} {' '.join(seen[what])}" for what in ("added", "removed", "retyped") if seen.get(what))
    return ""
