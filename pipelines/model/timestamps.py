"""Moments as people and JSON want them."""

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
    """The same moment in UTC. Spark hands timestamps out in the process's zone, without saying so."""
    return None if moment is None else moment.astimezone(UTC)


def parse_time(text: str) -> datetime:
    """Read an ISO 8601 time. One without a zone is UTC, whatever the machine's own zone is.

    Raises:
        ValueError: It is none.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def clock_us() -> int:
    """Microseconds since the epoch, UTC."""
    return time.time_ns() // 1000
