"""Statistics of a data file for data skipping, as an ``add`` action of a Delta log has them.

Source: delta-io/delta, PROTOCOL.md, per-file statistics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

STATISTICS: Final = "delta.dataSkippingStatsColumns"
"""Table property with the columns that have statistics."""
_LONGEST_BOUND: Final = 32
"""Maximum length of text bounds in statistics, in characters, as Delta itself does."""
_ABOVE_ALL: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = range(-62_135_596_800_000_000, 253_402_300_800_000_000 - 1_000)
"""Microseconds since 1970 of the years that the text of a time can show."""


def has_bounds(kind: pa.DataType) -> bool:
    """Return True if `FileStatistics` knows the smallest and largest value of columns of this type."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


class FileStatistics:
    """Statistics of some columns, collected part by part.

    Args:
        columns: Columns with statistics, of types for which `has_bounds` is true. Times are in microseconds.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.rows = 0
        self._nulls = dict.fromkeys(columns, 0)
        self._times: set[str] = set()
        self._smallest: dict[str, Any] = {}
        self._largest: dict[str, Any] = {}

    def add(self, part: pa.RecordBatch | pa.Table) -> None:
        self.rows += part.num_rows
        for name in self._nulls:
            self._nulls[name] += part[name].null_count
            values = part[name]
            if pa.types.is_timestamp(values.type):
                self._times.add(name)
                values = values.cast(pa.int64())
            bounds = pc.min_max(values).as_py()
            if bounds["min"] is not None:
                self._smallest[name] = min(bounds["min"], self._smallest.get(name, bounds["min"]))
                self._largest[name] = max(bounds["max"], self._largest.get(name, bounds["max"]))

    def to_json(self) -> str:
        bounds = {
            "minValues": self._shown(self._smallest, _floor, rounded=0),
            "maxValues": self._shown(self._largest, _ceiling, rounded=999),
        }
        return json.dumps({"numRecords": self.rows, **bounds, "nullCount": self._nulls})

    def _shown(self, bounds: Mapping[str, Any], shortened: Callable[[Any], Any], *, rounded: int) -> dict[str, Any]:
        """Return bounds as JSON has them. Times have milliseconds; a time that no text can show is left out.

        Args:
            rounded: Microseconds added to a time before it is cut.
        """
        times = {name: value for name, value in bounds.items() if name in self._times}
        others = {name: shortened(value) for name, value in bounds.items() if name not in times}
        return others | {name: _time(value + rounded) for name, value in times.items() if value in _TIMES}


def _time(micros: int) -> str:
    at = _EPOCH + timedelta(milliseconds=micros // 1_000)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1_000:03}Z"


def _floor(value: Any) -> Any:
    return value[:_LONGEST_BOUND] if isinstance(value, str) else value


def _ceiling(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= _LONGEST_BOUND or value[_LONGEST_BOUND] == _ABOVE_ALL:
        return value
    return value[:_LONGEST_BOUND] + _ABOVE_ALL
