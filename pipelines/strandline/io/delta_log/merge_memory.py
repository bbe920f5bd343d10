"""Memory that a MERGE by delta-rs takes, bounded before the MERGE begins. No Spark.

delta-rs streams the files of the target. It holds the rows of the source, a few dozen batches of 8,192 rows, and of
each file all rows before the first one that changes. So a table of any size can be merged, but not one with large rows
or with one change at the end of a large file. Measured with delta-rs 1.6.6: decision 71.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final
from urllib.parse import unquote

import pyarrow.parquet as pq

from strandline.io.delta_log.parquet_file import FIRST_TIME, TooLarge, refuse_old_times
from strandline.io.delta_log.table_folder import TableFolder

SMALL_BYTES: Final = 64 << 20
"""Bytes of a MERGE that needs no further look: rows of its source, and of the files that it reads. Not compressed."""
SOURCE_BYTES: Final = 384 << 20
"""Bytes of the rows of a source, at most."""
LARGE_MERGE: Final = Lock()
"""Held while a MERGE of more than `SMALL_BYTES` runs: tables are merged in parallel, and memory is for one of them."""
_BATCH_ROWS, _BATCH_BYTES = 8_192, 32 << 20
"""Rows of the target that delta-rs passes on at once, and their bytes at most. It holds up to forty such batches."""
GROUP_BYTES: Final = 256 << 20
"""Bytes of the files that one MERGE of several writes anew, at most, if a file is not larger. Not compressed."""
HELD_BYTES: Final = 256 << 20
"""Bytes of rows before the first one that changes, in all files together, at most."""
_ROW_GROUP_BYTES: Final = 32 << 20
_ROWS_AT_ONCE: Final = 256
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8, "FIXED_LEN_BYTE_ARRAY": 16}
"""Bytes of a value in memory, by the type that Parquet gives it."""


@dataclass(frozen=True)
class RowGroup:
    """Rows and bytes of a row group, not compressed."""

    rows: int
    size: int


@dataclass(frozen=True)
class ScannedFile:
    """Row groups of a data file whose rows a MERGE reads."""

    groups: Sequence[RowGroup]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    @property
    def size(self) -> int:
        return sum(group.size for group in self.groups)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, in the row group with the largest ones."""
        return max((group.size // max(1, group.rows) for group in self.groups), default=0)

    def bytes_before(self, row: int | None) -> int:
        """Return the bytes of the rows before a *row*. None: all bytes."""
        size = 0
        for group in self.groups:
            count = group.rows if row is None else max(0, min(row, group.rows))
            size += group.size * count // max(1, group.rows)
            row = None if row is None else row - group.rows
        return size

    @staticmethod
    def read(folder: TableFolder, path: str) -> ScannedFile:
        """I/O: reads the footer of a data file, and texts of which it has a dictionary.

        Raises:
            OldTime: The file has a time that delta-rs cannot write.
            FileNotFoundError: There is no such file.
            ArrowException: The file is damaged.
        """
        with pq.ParquetFile(folder.source(unquote(path)), coerce_int96_timestamp_unit="us") as file:
            return ScannedFile([_row_group(file, number) for number in range(file.metadata.num_row_groups)])


def require_memory(scanned: Sequence[tuple[ScannedFile, int | None]], source_bytes: int) -> None:
    """Raise TooLarge if a MERGE may take more memory than a process of silver may.

    Args:
        scanned: Files whose rows the MERGE reads, each with the number of rows before its first match, if it is known.
        source_bytes: Bytes of the rows of the source.
    """
    size = source_bytes + sum(file.size for file, _ in scanned)
    held = sum(file.bytes_before(first) for file, first in scanned)
    batch = min(size, _BATCH_ROWS * max((file.row_bytes for file, _ in scanned), default=0))
    if size > SMALL_BYTES and (source_bytes > SOURCE_BYTES or held > HELD_BYTES or batch > _BATCH_BYTES):
        raise TooLarge


def rows_of_a_group(rows: int, size: int) -> int:
    """Return the number of rows of a row group that delta-rs writes, where *rows* rows have *size* bytes."""
    return max(1, _ROW_GROUP_BYTES * rows // max(1, size))


def _row_group(file: pq.ParquetFile, number: int) -> RowGroup:
    group, unknown, size = file.metadata.row_group(number), [], 0
    for place in range(group.num_columns):
        column = group.column(place)
        if column.physical_type != "BYTE_ARRAY":
            size += column.num_values * _WIDTHS[column.physical_type]
        elif column.has_dictionary_page:  # the footer counts equal values once
            unknown.append(column.path_in_schema)
        else:
            size += column.total_uncompressed_size + 4 * column.num_values
        if _may_be_old(file.metadata.schema.column(place), column):
            unknown.append(column.path_in_schema)
    if unknown:
        for rows in file.iter_batches(_ROWS_AT_ONCE, [number], columns=unknown, use_threads=False):
            refuse_old_times(rows)
            size += rows.nbytes
    return RowGroup(group.num_rows, size)


def _may_be_old(column: pq.ColumnSchema, values: pq.ColumnChunkMetaData) -> bool:
    """Return True if a column of dates or times may hold one that `refuse_old_times` refuses, by its statistics."""
    kind = column.logical_type.to_json()
    if '"Timestamp"' not in kind and '"Date"' not in kind and values.physical_type != "INT96":
        return False
    statistics = values.statistics
    if statistics is not None and statistics.has_null_count and statistics.null_count == values.num_values:
        return False
    is_known = statistics is not None and statistics.has_min_max and '"microseconds"' in kind
    return not is_known or statistics.min_raw < FIRST_TIME
