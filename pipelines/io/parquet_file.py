"""Write rows as one data file of a Delta table in a folder, with statistics for data skipping. No JVM."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_LONGEST_BOUND: Final = 32
"""Maximum length of text bounds in statistics, in characters, as Delta itself does."""
_ABOVE_ALL: Final = "\U0010ffff"


@dataclass(frozen=True)
class DataFile:
    """A data file that is written, but not yet part of its table."""

    name: str
    """Name in the table's folder."""
    rows: int
    size: int
    """Bytes."""
    modified_ms: int
    statistics: str
    """Statistics as JSON, as in an ``add`` action."""


def write_data_file(
    folder: Path,
    schema: pa.Schema,
    parts: Iterable[pa.RecordBatch],
    *,
    statistics_of: Sequence[str],
    dictionaries: Sequence[str],
) -> DataFile:
    """I/O: writes *parts* as one Parquet file into *folder*. Its content is on disk on return, its name is not.

    VACUUM removes files that no commit names.

    Args:
        statistics_of: Columns with statistics: texts or integers.
        dictionaries: Columns with few distinct values. Nested columns by path.
    """
    name, statistics = f"part-00000-{uuid.uuid4()}.c000.zstd.parquet", _Statistics(statistics_of)
    try:
        with (folder / name).open("xb") as file:
            with pq.ParquetWriter(
                file, schema, compression="zstd", compression_level=1, use_dictionary=list(dictionaries)
            ) as writer:
                for part in parts:
                    writer.write_batch(part)
                    statistics.add(part)
            file.flush()
            os.fsync(file.fileno())
            written = os.fstat(file.fileno())
    except BaseException:
        (folder / name).unlink(missing_ok=True)  # failed attempts must not fill the disk
        raise
    return DataFile(name, statistics.rows, written.st_size, int(written.st_mtime * 1000), statistics.to_json())


class _Statistics:
    """Statistics of some columns, collected part by part."""

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
