"""A streamed batch as a DataFrame: small ones are parsed where they were read, large ones on the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipelines.bronze.envelope import BatchEnd, Stamp, heartbeat_table, stream_table
from pipelines.io.tables import schema_of
from pipelines.model.columns import BRONZE_DDL

PARSED_HERE: Final = 4_000
"""Events of a batch that one thread parses before a Python worker would have begun."""

_RAW_DDL = "envelope BINARY, resume_token STRING, snapshot_id STRING"
_RAW = pa.schema([("envelope", pa.binary()), ("resume_token", pa.string()), ("snapshot_id", pa.string())])


def stream_rows(spark: SparkSession, events: Sequence[bytes], stamp: Stamp, *, batch: int, end: BatchEnd, stored_json: bool) -> DataFrame:
    """Bronze rows of one streamed batch. No events: a heartbeat.

    Parsing holds the interpreter lock that the stream's reader needs, so a large batch leaves this process as bytes, in slices of
    ``spark.sql.execution.arrow.maxRecordsPerBatch``, and each is parsed in its task.
    """
    if len(events) > PARSED_HERE:
        before_last = [None] * (len(events) - 1)
        raw = pa.table([list(events), [*before_last, end.resume_token], [*before_last, end.snapshot_id]], schema=_RAW)
        frame = spark.createDataFrame(raw, schema=schema_of(_RAW_DDL))
        return frame.mapInArrow(_parsing(stamp, batch, stored_json), BRONZE_DDL)
    table = (
        stream_table(events, stamp, batch=batch, end=end, stored_json=stored_json)
        if events
        else heartbeat_table(stamp, batch=batch, end=end)
    )
    return spark.createDataFrame(table, schema=schema_of(BRONZE_DDL)).coalesce(1)  # one file for few rows


def _parsing(stamp: Stamp, batch: int, stored_json: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def parse(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            if not part.num_rows:
                continue
            token, snapshot_id = part["resume_token"][-1].as_py(), part["snapshot_id"][-1].as_py()
            end = BatchEnd(token, snapshot_id) if token is not None else None
            yield from stream_table(part["envelope"].to_pylist(), stamp, batch=batch, end=end, stored_json=stored_json).to_batches()

    return parse
