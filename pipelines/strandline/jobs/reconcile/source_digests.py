"""Digests of a source collection by `_id` range, computed on the executors. No document leaves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from strandline.errors import ConfigurationError, RetriableError, strandline_error
from strandline.model.bson.id_order import id_document
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.position import snapshot_position
from strandline.model.range_digest import RangeDigest, digest
from strandline.source.client import Collection, ConnectionOptions, open_client, operation_time
from strandline.source.ranges import Range, ReadOptions, read_range

_MAX_AGE_SECONDS = 60
"""Maximum age of the cluster time at which a range is read."""
_DOCUMENTS_DDL = "key STRING, identifier BINARY, digest BINARY"
_DOCUMENTS = pa.schema([("key", pa.string()), ("identifier", pa.binary()), ("digest", pa.binary())])
_SUMS_DDL = "number INT, documents BIGINT, total STRING, seconds BIGINT, increment BIGINT"
_SUMS = pa.schema(
    [
        ("number", pa.int32()),
        ("documents", pa.int64()),
        ("total", pa.string()),
        ("seconds", pa.int64()),
        ("increment", pa.int64()),
    ]
)

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class RangeRead:
    """Digest of one range."""

    sum: RangeDigest
    at: tuple[int, int]
    """Cluster time (seconds, increment) at which the range was read."""

    @property
    def position(self) -> str:
        """`at` as a position."""
        return snapshot_position(*self.at)


@dataclass(frozen=True)
class SourceDigests:
    """One collection, divided into the ranges that a snapshot of it would have."""

    spark: SparkSession
    options: ConnectionOptions
    collection: Collection | None
    """None: the source no longer has the collection."""
    ranges: Sequence[Range]
    reading: ReadOptions
    readers: int
    """Number of ranges that are read in parallel."""

    @property
    def bounds(self) -> list[bytes]:
        """Lower bounds of all ranges but the first."""
        return [chunk.lower for chunk in self.ranges if chunk.lower is not None]

    def sums(self, at: tuple[int, int]) -> list[RangeRead]:
        """Return the digest of each range, in order.

        I/O: reads every document.

        Args:
            at: Cluster time of the read. A range that is read more than 60 s later is read at the then current time:
                the server keeps snapshot history for five minutes.

        Raises:
            RetriableError: A range could not be read.
        """
        if self.collection is None:
            return [RangeRead(RangeDigest(), at) for _ in self.ranges]
        rows = self._numbers(range(len(self.ranges))).mapInArrow(self._sum_mapper(self.collection, at), _SUMS_DDL)
        with self.translate_errors():
            rows_by_number = {row["number"]: row for row in rows.collect()}
        return [
            RangeRead(RangeDigest.from_hex(row["documents"], row["total"]), (row["seconds"], row["increment"]))
            for row in (rows_by_number[number] for number in range(len(self.ranges)))
        ]

    def documents(self, numbers: Sequence[int], at: tuple[int, int]) -> DataFrame:
        """Return ``key``, ``identifier`` and ``digest`` of every document in *numbers* at cluster time *at*. Lazy."""
        if self.collection is None:
            return self.spark.createDataFrame([], _DOCUMENTS_DDL)
        return self._numbers(numbers).mapInArrow(self._document_mapper(self.collection, at), _DOCUMENTS_DDL)

    def _numbers(self, numbers: Sequence[int]) -> DataFrame:
        frame = self.spark.createDataFrame([(number,) for number in numbers], "number INT")
        return frame.repartition(max(1, min(self.readers, len(numbers))))

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn failures of the executors into one short error. Wrap every Spark action on the digests in it."""
        try:
            yield
        except PySparkException as error:
            if isinstance(own_error := strandline_error(error), ConfigurationError):
                raise own_error from error
            raise RetriableError(
                f"{self.collection} could not be read from the source at one cluster time",
                next_step="strandline reconcile again; a source that is short of history needs a larger "
                "minSnapshotHistoryWindowInSeconds",
            ) from error

    def _sum_mapper(self, collection: Collection, at: tuple[int, int]) -> Batches:
        options, ranges, reading = self.options, tuple(self.ranges), self.reading

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with closing(open_client(options, raw=True)) as client:
                for number in _numbers_in(batches):
                    now = operation_time(client)
                    read_at = at if now[0] - at[0] < _MAX_AGE_SECONDS else now
                    total = RangeDigest()
                    for documents in read_range(client, collection, ranges[number], read_at, reading):
                        total += RangeDigest.of(documents)
                    row = {"number": number, "documents": total.documents, "total": total.to_hex()}
                    yield pa.RecordBatch.from_pylist(
                        [row | {"seconds": read_at[0], "increment": read_at[1]}], schema=_SUMS
                    )

        return run

    def _document_mapper(self, collection: Collection, at: tuple[int, int]) -> Batches:
        options, ranges, reading = self.options, tuple(self.ranges), self.reading

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with closing(open_client(options, raw=True)) as client:
                for number in _numbers_in(batches):
                    for documents in read_range(client, collection, ranges[number], at, reading):
                        yield pa.RecordBatch.from_arrays(
                            [
                                pa.array([document_merge_key(document) for document in documents], pa.string()),
                                pa.array([id_document(document) for document in documents], pa.binary()),
                                pa.array([digest(document) for document in documents], pa.binary()),
                            ],
                            schema=_DOCUMENTS,
                        )

        return run


def _numbers_in(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("number").to_pylist()
