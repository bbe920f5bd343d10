"""Write rows as one data file of a Delta table, with statistics for data skipping. No JVM."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.io.delta_log.file_statistics import FileStatistics
from strandline.io.delta_log.table_folder import TableFolder

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_ROWS_AT_ONCE: Final = 256
"""Rows that are read before their bytes are counted, at least."""
_MOST_AT_ONCE, _BYTES_AT_ONCE = 8_192, 1 << 20
"""Rows that are read at once, at most, and their bytes on average."""
_CALENDAR: Final = {"org.apache.spark.version": "3.0.0"}
"""Tells Spark that dates and times are in the Gregorian calendar, as Spark writes them from 3.0 on. Without it Spark 3
refuses a file that has a time before 1900 (SPARK-31404)."""
FIRST_TIME: Final = -2_208_988_800_000_000
"""The year 1900, in microseconds since 1970: Spark 3 reads later times in either calendar."""
_FIRST_DAY: Final = -141_427
"""1582-10-15, the first day of the Gregorian calendar, in days since 1970."""


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
    folder: TableFolder,
    schema: pa.Schema,
    parts: Iterable[pa.RecordBatch | pa.Table],
    *,
    statistics_of: Sequence[str],
    dictionaries: Sequence[str],
    prefix: str = "part-00000-",
    end_at: int | None = None,
) -> DataFile:
    """I/O: writes *parts* as one Parquet file into *folder*. Its content is on disk on return, its name is not.

    VACUUM removes files that no commit names.

    Args:
        parts: One row group each.
        statistics_of: Columns with statistics: texts or integers.
        dictionaries: Columns with few distinct values. Nested columns by path.
        prefix: Beginning of the file's name.
        end_at: Size in bytes at which the file ends. Further parts stay in the iterator. None: all parts are written.
    """
    name, statistics = f"{prefix}{uuid.uuid4()}.c000.zstd.parquet", FileStatistics(statistics_of)
    with folder.writing(name) as file:
        with pq.ParquetWriter(
            file, schema, compression="zstd", compression_level=1, use_dictionary=list(dictionaries)
        ) as writer:
            for part in parts:
                writer.write(part, row_group_size=part.num_rows)
                statistics.add(part)
                if end_at is not None and file.tell() >= end_at:
                    break
            writer.add_key_value_metadata(_CALENDAR)
        size = file.tell()
    return DataFile(name, statistics.rows, size, time.time_ns() // 1_000_000, statistics.to_json())


def up_to(size: int, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield *parts* until they have *size* bytes. The others stay in the iterator."""
    for part in parts:
        yield part
        size -= part.nbytes
        if size <= 0:
            return


class OldTime(Exception):
    """Rows hold a time that Spark 3 refuses in files without `_CALENDAR`."""


class TooLarge(Exception):
    """The rows are more bytes than this process may hold."""


@dataclass
class Budget:
    """Bytes of rows that this process may still read. Not compressed."""

    left: int

    def require(self, size: int) -> None:
        """Raise TooLarge if *size* bytes are more than are left."""
        if size > self.left:
            raise TooLarge

    def spend(self, size: int) -> None:
        """Take *size* bytes. Raises as `require`."""
        self.require(size)
        self.left -= size


def read_data_file(folder: TableFolder, path: str, schema: pa.Schema, budget: Budget) -> pa.Table:
    """I/O: reads a data file as a whole. Arguments, errors: as `read_batches`."""
    return pa.Table.from_batches(read_batches(folder, path, schema, budget), schema=schema)


def read_batches(
    folder: TableFolder,
    path: str,
    schema: pa.Schema,
    budget: Budget | None = None,
    row_groups: Callable[[pq.FileMetaData], Iterable[int]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """I/O: yields the rows of a data file with the columns of *schema*. Columns that the file lacks are null.

    Args:
        path: Path as the log has it: below the table, URL-encoded.
        budget: Its bytes are spent. The footer is asked first. It counts equal values once, so the rows are counted,
            too, while they are read. None: no limit.
        row_groups: Chooses the row groups to read, by the footer. None: all.

    Raises:
        FileNotFoundError: There is no such file.
        TooLarge: The rows have more bytes than *budget*.
    """
    with pq.ParquetFile(folder.source(unquote(path)), coerce_int96_timestamp_unit="us") as file:
        if budget is not None:
            budget.require(_uncompressed(file.metadata, schema.names))
        numbers = None if row_groups is None else list(row_groups(file.metadata))
        rows = _rows_at_once(file.metadata, schema.names)
        for batch in file.iter_batches(rows, numbers, columns=schema.names, use_threads=False):
            if budget is not None:
                budget.spend(batch.nbytes)
            yield conformed(batch, schema)


def _rows_at_once(footer: pq.FileMetaData, names: Sequence[str]) -> int:
    """Return the rows to read at once: few if the footer does not tell the bytes of each value."""
    columns = list(_columns(footer, names))
    if any(one.has_dictionary_page for one in columns):
        return _ROWS_AT_ONCE
    rows = _BYTES_AT_ONCE * footer.num_rows // max(1, sum(one.total_uncompressed_size for one in columns))
    return int(max(_ROWS_AT_ONCE, min(_MOST_AT_ONCE, rows)))


def _uncompressed(footer: pq.FileMetaData, names: Sequence[str]) -> int:
    """Return the bytes of the columns *names*, as they are encoded before compression."""
    return sum(one.total_uncompressed_size for one in _columns(footer, names))


def _columns(footer: pq.FileMetaData, names: Sequence[str]) -> Iterator[pq.ColumnChunkMetaData]:
    """Yield the columns *names* of all row groups, without the levels of nested ones."""
    prefixes = tuple(f"{name}." for name in names)  # a name may have dots
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    columns = (group.column(number) for group in groups for number in range(group.num_columns))
    return (one for one in columns if f"{one.path_in_schema}.".startswith(prefixes))


def conformed(rows: Rows, schema: pa.Schema) -> Rows:
    """Return *rows* with the columns and types of *schema*. Columns that they lack are null."""
    if rows.schema.equals(schema):
        return rows
    names = set(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type) if field.name in names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return type(rows).from_arrays(columns, schema=schema)


def refuse_old_times(rows: pa.RecordBatch | pa.Table) -> None:
    """Raise OldTime if *rows* hold a time or a date that Spark 3 refuses in a file without `_CALENDAR`."""
    if any(map(_holds_old_times, rows.columns)):
        raise OldTime


def _holds_old_times(values: pa.Array | pa.ChunkedArray) -> bool:
    kind = values.type
    if pa.types.is_struct(kind):
        return any(map(_holds_old_times, values.flatten()))
    if pa.types.is_list(kind):
        return _holds_old_times(pc.list_flatten(values))
    if pa.types.is_nested(kind):
        return "timestamp" in str(kind) or "date" in str(kind)
    if pa.types.is_date32(kind):
        return _smallest(values.cast(pa.int32())) < _FIRST_DAY
    return bool(pa.types.is_timestamp(kind)) and _smallest(values.cast(pa.int64())) < FIRST_TIME


def _smallest(values: pa.Array | pa.ChunkedArray) -> int:
    smallest = pc.min(values).as_py()
    return 0 if smallest is None else int(smallest)
