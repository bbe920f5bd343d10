"""Moments as people and JSON want them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


@overload
def utc(moment: datetime) -> datetime: ...
@overload
def utc(moment: None) -> None: ...
@overload
def utc(moment: datetime | None) -> datetime | None: ...
def utc(moment: datetime | None) -> datetime | None:
    """The same moment in UTC. Spark hands timestamps out in the process's zone, without saying so."""
    return None if moment is None else moment.astimezone(UTC)
