"""A streamed batch as a DataFrame: small ones are parsed where they were read, large ones on the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipelines.bronze.envelope import HEARTBEAT, BatchEnd, Note, Stamp, control_table, stream_table
from pipelines.io.tables import schema_of
from pipelines.model.columns import BRONZE_DDL

PARSED_HERE: Final = 4_000
"""Events of a batch that one thread parses before a Python worker would have begun."""

_RAW_DDL = "envelope BINARY, last BOOLEAN"
_RAW = pa.schema([("envelope", pa.binary()), ("last", pa.bool_())])


def stream_rows(spark: SparkSession, events: Sequence[bytes], stamp: Stamp, *, batch: int, end: BatchEnd, stored_json: bool) -> DataFrame:
    """Bronze rows of one streamed batch. No events: a heartbeat.

    Parsing holds the interpreter lock that the stream's reader needs, so a large batch leaves this process as bytes, in slices of
    ``spark.sql.execution.arrow.maxRecordsPerBatch``, and each is parsed in its task.
    """
    if not events:
        return control_rows(spark, stamp, batch=batch, end=end)
    if len(events) > PARSED_HERE:
        raw = pa.table([list(events), [False] * (len(events) - 1) + [True]], schema=_RAW)
        frame = spark.createDataFrame(raw, schema=schema_of(_RAW_DDL))
        return frame.mapInArrow(_parsing(stamp, batch, end, stored_json), BRONZE_DDL)
    return _one_file(spark, stream_table(events, stamp, batch=batch, end=end, stored_json=stored_json))


def control_rows(spark: SparkSession, stamp: Stamp, *, batch: int, end: BatchEnd, note: Note = HEARTBEAT) -> DataFrame:
    """The one bronze row of a batch without events."""
    return _one_file(spark, control_table(stamp, batch=batch, end=end, note=note))


def _one_file(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows, schema=schema_of(BRONZE_DDL)).coalesce(1)


def _parsing(stamp: Stamp, batch: int, end: BatchEnd, stored_json: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def parse(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            if not part.num_rows:
                continue
            ending = end if part["last"][-1].as_py() else None
            yield from stream_table(part["envelope"].to_pylist(), stamp, batch=batch, end=ending, stored_json=stored_json).to_batches()

    return parse
