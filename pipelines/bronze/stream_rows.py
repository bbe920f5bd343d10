"""A streamed batch as a DataFrame: small ones are parsed where they were read, large ones on the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipelines.bronze.envelope import Batch, stream_table
from pipelines.io.tables import schema_of
from pipelines.model.columns import BRONZE_DDL

PARSED_HERE: Final = 4_000
"""Events of a batch that one thread parses before a Python worker would have begun."""

_RAW_DDL = "envelope BINARY, last BOOLEAN"
_RAW = pa.schema([("envelope", pa.binary()), ("last", pa.bool_())])


def stream_rows(spark: SparkSession, batch: Batch) -> DataFrame:
    """Bronze rows of one streamed batch.

    Parsing holds the interpreter lock that the stream's reader needs, so a large batch leaves this process as bytes, in slices of
    ``spark.sql.execution.arrow.maxRecordsPerBatch``, and each is parsed in its task.
    """
    if len(batch.events) > PARSED_HERE:
        raw = pa.table([list(batch.events), [False] * (len(batch.events) - 1) + [True]], schema=_RAW)
        frame = spark.createDataFrame(raw, schema=schema_of(_RAW_DDL))
        return frame.mapInArrow(_parsing(replace(batch, events=())), BRONZE_DDL)
    return one_file(spark, stream_table(batch))


def one_file(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows of bronze that are few enough to be written as one file."""
    return spark.createDataFrame(rows, schema=schema_of(BRONZE_DDL)).coalesce(1)


def _parsing(batch: Batch) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def parse(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            if not part.num_rows:
                continue
            is_last = part["last"][-1].as_py()
            yield from stream_table(replace(batch, events=part["envelope"].to_pylist()), is_last=is_last).to_batches()

    return parse
