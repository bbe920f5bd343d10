"""Ends of life of the releases of MongoDB and Spark, as their projects announce them. Data, read by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Final

READ_ON: Final = date(2026, 11, 28)
"""Day on which the dates were read."""

MONGODB: Final[Mapping[str, date]] = MappingProxyType(
    {
        "4.4": date(2024, 2, 29),
        "5.0": date(2024, 10, 31),
        "6.0": date(2025, 7, 31),
        "7.0": date(2027, 8, 31),
        "8.0": date(2029, 10, 31),
        "8.2": date(2026, 7, 31),
    }
)
"""Source: https://www.mongodb.com/legal/support-policy/lifecycles. It names no day for 8.3. For 9.0, which is out since
2026-09-28, none was found."""

SPARK: Final[Mapping[str, date]] = MappingProxyType({"4.0": date(2026, 11, 23), "4.1": date(2027, 6, 11)})
"""Spark maintains a branch for 18 months (https://spark.apache.org/versioning-policy.html), and announces no day. The
days are the estimates of https://endoflife.date/apache-spark. It had none for 4.2."""

_MINOR: Final = re.compile(r"\d+\.\d+")


def end_of_life(version: str, dates: Mapping[str, date]) -> date | None:
    """Return the last day of support of *version*, such as ``6.0.27``. None: no day is known."""
    minor = _MINOR.match(version)
    return None if minor is None else dates.get(minor[0])
