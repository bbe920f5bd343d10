"""Statistics of a data file for data skipping, as an ``add`` action of a Delta log has them.

Source: delta-io/delta, PROTOCOL.md, per-file statistics.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_LONGEST_BOUND: Final = 32
"""Maximum length of text bounds in statistics, in characters, as Delta itself does."""
_ABOVE_ALL: Final = "\U0010ffff"


class FileStatistics:
    """Statistics of some columns, collected part by part.

    Args:
        columns: Columns with statistics: texts or integers.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.rows = 0
        self._nulls = dict.fromkeys(columns, 0)
        self._smallest: dict[str, Any] = {}
        self._largest: dict[str, Any] = {}

    def add(self, part: pa.RecordBatch) -> None:
        self.rows += part.num_rows
        for name in self._nulls:
            self._nulls[name] += part[name].null_count
            bounds = pc.min_max(part[name]).as_py()
            if bounds["min"] is not None:
                self._smallest[name] = min(bounds["min"], self._smallest.get(name, bounds["min"]))
                self._largest[name] = max(bounds["max"], self._largest.get(name, bounds["max"]))

    def to_json(self) -> str:
        bounds = {
            "minValues": {name: _floor(value) for name, value in self._smallest.items()},
            "maxValues": {name: _ceiling(value) for name, value in self._largest.items()},
        }
        return json.dumps({"numRecords": self.rows, **bounds, "nullCount": self._nulls})


def _floor(value: Any) -> Any:
    return value[:_LONGEST_BOUND] if isinstance(value, str) else value


def _ceiling(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= _LONGEST_BOUND or value[_LONGEST_BOUND] == _ABOVE_ALL:
        return value
    return value[:_LONGEST_BOUND] + _ABOVE_ALL
