"""Freshness, volume and schema drift: expectations about a table as a whole that Great Expectations has not, because they know the clock
and what was seen before."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.model.timestamps import utc
from pipelines.quality.rules import Expectation, Kind

FRESH, VOLUME, DRIFT = (
    "expect_table_to_be_fresh",
    "expect_table_volume_to_be_usual",
    "expect_table_schema_to_be_unchanged",
)

TABLE_KINDS: Mapping[str, Kind] = {
    FRESH: Kind(("column", "max_age"), "table", ("max_age",)),
    VOLUME: Kind(("max_change_percent", "min_rows"), "table", ("max_change_percent",)),
    DRIFT: Kind((), "table"),
}

_AGE = re.compile(r"(\d+) ?(s|m|h|d)\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Seen:
    """*observed* is what the next run compares with, once this one has passed."""

    outcome: Literal["passed", "failed", "error"]
    observed: Mapping[str, Any]


def check_table(expectation: Expectation, rows: DataFrame, before: Mapping[str, Any] | None, now: datetime) -> Seen:
    """Check one built-in expectation.

    I/O: at most one aggregate over *rows*.

    Args:
        expectation: Of a kind among `TABLE_KINDS`.
        before: What was observed when it last passed or was accepted; None: never.
        now: Aware.
    """
    if expectation.type == FRESH:
        return _fresh(
            rows, str(expectation.arguments.get("column", "_cluster_time")), str(expectation.arguments["max_age"]), now
        )
    if expectation.type == VOLUME:
        return _volume(rows.count(), expectation.arguments, before)
    return _drift({field.name: field.dataType.simpleString() for field in rows.schema.fields}, before)


def _fresh(rows: DataFrame, column: str, max_age: str, now: datetime) -> Seen:
    match = _AGE.match(max_age)
    if match is None:
        return Seen("error", {"error": f"max_age: {max_age} is no time such as 90s, 30m, 6h, 2d"})
    row = rows.agg(F.max(column)).first()
    newest = None if row is None else row[0]
    if newest is None:
        return Seen("failed", {"newest": None})
    if not isinstance(newest, datetime):
        return Seen("error", {"error": f"{column} is no TIMESTAMP"})
    age = now - utc(newest)
    fresh = age <= timedelta(**{_UNITS[match[2]]: int(match[1])})
    return Seen(
        "passed" if fresh else "failed", {"newest": utc(newest).isoformat(), "age_seconds": int(age.total_seconds())}
    )


def _volume(count: int, arguments: Mapping[str, Any], before: Mapping[str, Any] | None) -> Seen:
    usual = None if before is None else int(before["row_count"])
    change = 0.0 if not usual else round(100.0 * abs(count - usual) / usual, 1)
    good = count >= int(arguments.get("min_rows", 0)) and change <= float(arguments["max_change_percent"])
    return Seen(
        "passed" if good else "failed", {"row_count": count, "usual_row_count": usual, "change_percent": change}
    )


def _drift(columns: Mapping[str, str], before: Mapping[str, Any] | None) -> Seen:
    known: Mapping[str, str] = columns if before is None else before["columns"]
    changes = {
        "added": sorted(columns.keys() - known.keys()),
        "removed": sorted(known.keys() - columns.keys()),
        "retyped": sorted(name for name in columns.keys() & known.keys() if columns[name] != known[name]),
    }
    return Seen("failed" if any(changes.values()) else "passed", {"columns": dict(columns), **changes})


def short(expectation: str, observed: str) -> str:
    """What a failed built-in expectation saw, in a few words; empty for any other."""
    seen = json.loads(observed)
    if expectation == FRESH:
        return f"newest {seen.get('newest')}"
    if expectation == VOLUME:
        return f"{seen.get('row_count')} rows, usual {seen.get('usual_row_count')}"
    if expectation == DRIFT:
        return ", ".join(f"{what} {' '.join(seen[what])}" for what in ("added", "removed", "retyped") if seen.get(what))
    return ""
