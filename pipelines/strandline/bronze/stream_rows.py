"""A streamed batch as a DataFrame. Small batches are parsed in this process, large ones on the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from strandline.bronze.envelope import Batch, stream_table
from strandline.io.tables.ddl import schema_of
from strandline.model.table_schemas import BRONZE_DDL

PARSED_HERE: Final = 4_000
"""Maximum events of a batch that this process parses: faster than starting a Python worker."""

SLICE: Final = 25_000
"""Events of a large batch per task and per file."""

_RAW_DDL = "envelope BINARY, last BOOLEAN"
_RAW = pa.schema([("envelope", pa.binary()), ("last", pa.bool_())])
_Parse = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@contextmanager
def stream_rows(spark: SparkSession, batch: Batch) -> Iterator[DataFrame]:
    """Yield the bronze rows of a streamed batch. They can be read inside the block only.

    Parsing holds the interpreter lock that the stream's reader needs. So a large batch leaves this process as slices of
    bytes, and tasks parse them. A slice is broadcast: its worker reads the pickled bytes, and the JVM makes no rows of
    them. Spark Connect has no broadcast, and gets rows of bytes.
    """
    if len(batch.events) <= PARSED_HERE:
        yield one_file(spark, stream_table(batch))
        return
    if is_remote():
        raw = pa.table([list(batch.events), [False] * (len(batch.events) - 1) + [True]], schema=_RAW)
        yield spark.createDataFrame(raw, schema=schema_of(_RAW_DDL)).mapInArrow(
            _parsing_rows(replace(batch, events=())), BRONZE_DDL
        )
        return
    with ExitStack() as lent:
        slices = []
        for part in batch.parts(SLICE):
            slices.append(spark.sparkContext.broadcast(part))
            lent.callback(slices[-1].destroy)
        yield spark.range(0, len(slices), 1, len(slices)).mapInArrow(_parsing_slices(slices), BRONZE_DDL)


def one_file(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return a few rows of bronze as a DataFrame that is written as one file."""
    return spark.createDataFrame(rows, schema=schema_of(BRONZE_DDL)).coalesce(1)


def _parsing_slices(slices: Sequence[Broadcast[Batch]]) -> _Parse:
    def parse(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for number in some["id"].to_pylist():
                yield from stream_table(slices[number].value).to_batches()

    return parse


def _parsing_rows(batch: Batch) -> _Parse:
    def parse(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            if not part.num_rows:
                continue
            end = batch.end if part["last"][-1].as_py() else None
            yield from stream_table(replace(batch, events=part["envelope"].to_pylist(), end=end)).to_batches()

    return parse
