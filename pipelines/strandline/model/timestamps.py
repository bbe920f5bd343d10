"""Conversion of timestamps."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final, overload

TIME_EXAMPLE: Final = "write it like 2026-01-31T12:00:00+00:00; a time without a zone is UTC"


@overload
def utc(moment: datetime) -> datetime: ...
@overload
def utc(moment: None) -> None: ...
@overload
def utc(moment: datetime | None) -> datetime | None: ...
def utc(moment: datetime | None) -> datetime | None:
    """Convert *moment* to UTC. Spark returns timestamps without a zone, in the process's time zone. None stays None."""
    return None if moment is None else moment.astimezone(UTC)


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time. A time without a zone is UTC.

    Raises:
        ValueError: *text* is not an ISO 8601 time.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def seconds_of(text: str) -> int | None:
    """Return an ISO 8601 time as seconds since the epoch.

    Without a zone the time is UTC. None: invalid, or before 1970.
    """
    try:
        seconds = int(parse_time(text).timestamp())
    except (ValueError, OverflowError):  # the first and the last day of the calendar overflow in some zones
        return None
    return seconds if seconds > 0 else None


def clock_us() -> int:
    """I/O: reads the clock. Return microseconds since the epoch (UTC)."""
    return time.time_ns() // 1000


def span(seconds: float | None) -> str:
    """Return a duration as people read it: ``3 min 20 s``. None: a dash."""
    if seconds is None:
        return "–"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 172_800:
        return f"{whole // 3_600} h {whole % 3_600 // 60} min"
    return f"{whole // 86_400} days"
