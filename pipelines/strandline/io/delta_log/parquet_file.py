"""Write rows as one data file of a Delta table, with statistics for data skipping. No JVM."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.io.delta_log.file_statistics import FileStatistics
from strandline.io.delta_log.table_folder import TableFolder

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_CALENDAR: Final = {"org.apache.spark.version": "3.0.0"}
"""Tells Spark that dates and times are in the Gregorian calendar, as Spark writes them from 3.0 on. Without it Spark 3
refuses a file that has a time before 1900 (SPARK-31404)."""


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
    parts: Iterable[pa.RecordBatch],
    *,
    statistics_of: Sequence[str],
    dictionaries: Sequence[str] | None,
    prefix: str = "part-00000-",
    end_at: int | None = None,
) -> DataFile:
    """I/O: writes *parts* as one Parquet file into *folder*. Its content is on disk on return, its name is not.

    VACUUM removes files that no commit names.

    Args:
        parts: One row group each.
        statistics_of: Columns with statistics: texts or integers.
        dictionaries: Columns with few distinct values. Nested columns by path. None: every column may have few.
        prefix: Beginning of the file's name.
        end_at: Size in bytes at which the file ends. Further parts stay in the iterator. None: all parts are written.
    """
    name, statistics = f"{prefix}{uuid.uuid4()}.c000.zstd.parquet", FileStatistics(statistics_of)
    with folder.writing(name) as file:
        uses_dictionary = True if dictionaries is None else list(dictionaries)
        with pq.ParquetWriter(
            file, schema, compression="zstd", compression_level=1, use_dictionary=uses_dictionary
        ) as writer:
            for part in parts:
                writer.write_batch(part)
                statistics.add(part)
                if end_at is not None and file.tell() >= end_at:
                    break
            writer.add_key_value_metadata(_CALENDAR)
        size = file.tell()
    return DataFile(name, statistics.rows, size, time.time_ns() // 1_000_000, statistics.to_json())


def read_data_file(folder: TableFolder, path: str, schema: pa.Schema) -> pa.Table:
    """I/O: reads a data file as a whole, with the columns of *schema*. Columns that the file lacks are null.

    Args:
        path: Path as the log has it: below the table, URL-encoded.

    Raises:
        FileNotFoundError: There is no such file.
    """
    with pq.ParquetFile(folder.source(unquote(path)), coerce_int96_timestamp_unit="us") as file:
        return conformed(file.read(columns=schema.names, use_threads=False), schema)


def conformed(rows: Rows, schema: pa.Schema) -> Rows:
    """Return *rows* with the columns and types of *schema*. Columns that they lack are null."""
    known = set(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type) if field.name in known else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return type(rows).from_arrays(columns, schema=schema)
