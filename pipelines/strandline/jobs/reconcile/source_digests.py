"""Digests of a source collection by `_id` range, computed where the engine runs. No document leaves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import ConfigurationError, RetriableError, strandline_error
from strandline.io.spark.races import is_of_spark
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.position import snapshot_position
from strandline.model.range_digest import RangeDigest
from strandline.silver.reconcile_diff import DOCUMENTS, SUMS, Batches, source_batch, sums_batch, sums_in
from strandline.source.client import Collection, ConnectionOptions, open_client, operation_time
from strandline.source.ranges import Range, ReadOptions, read_range

if TYPE_CHECKING:  # workers of Spark import this module
    from strandline.jobs.reconcile.engines import Engine, Rows

_MAX_AGE_SECONDS = 60
"""Maximum age of the cluster time at which a range is read."""
_READS = pa.schema([*SUMS, ("seconds", pa.int64()), ("increment", pa.int64())])


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

    options: ConnectionOptions
    collection: Collection | None
    """None: the source no longer has the collection."""
    ranges: Sequence[Range]
    reading: ReadOptions
    readers: int
    """Number of ranges that are read in parallel."""
    numbers: Sequence[int] | None = None
    """Numbers of the ranges to compare. None: all."""

    @property
    def bounds(self) -> list[bytes]:
        """Lower bounds of all ranges but the first."""
        return [chunk.lower for chunk in self.ranges if chunk.lower is not None]

    def sums(self, engine: Engine, at: tuple[int, int], numbers: Sequence[int] | None = None) -> dict[int, RangeRead]:
        """Return the digest of each range, by its number.

        I/O: reads every document of these ranges.

        Args:
            numbers: Numbers of the ranges. None: all.
            at: Cluster time of the read. A range that is read more than 60 s later is read at the then current time:
                the server keeps snapshot history for five minutes.

        Raises:
            RetriableError: A range could not be read.
        """
        numbers = range(len(self.ranges)) if numbers is None else numbers
        if self.collection is None:
            return {number: RangeRead(RangeDigest(), at) for number in numbers}
        with self.translate_errors():
            rows = engine.ranges(numbers, self.readers).map(self._sum_mapper(self.collection, at), _READS).collect()
        sums = sums_in(rows.to_batches())
        times = {row["number"]: (row["seconds"], row["increment"]) for row in rows.to_pylist()}
        return {number: RangeRead(sums[number], times[number]) for number in numbers}

    def documents(self, engine: Engine, numbers: Sequence[int], at: tuple[int, int]) -> Rows:
        """Return `DOCUMENTS` of every document in *numbers* at cluster time *at*. Lazy."""
        if self.collection is None:
            return engine.ranges([], 1).map(lambda _: iter(DOCUMENTS.empty_table().to_batches()), DOCUMENTS)
        return engine.ranges(numbers, self.readers).map(self._document_mapper(self.collection, at), DOCUMENTS)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn failures of the executors into one short error. Wrap every action on the digests in it."""
        try:
            yield
        except Exception as error:
            if not is_of_spark(error):
                raise
            if isinstance(own_error := strandline_error(error), ConfigurationError):
                raise own_error from error
            raise _unread(self.collection) from error

    def _sum_mapper(self, collection: Collection, at: tuple[int, int]) -> Batches:
        options, ranges, reading = self.options, tuple(self.ranges), self.reading

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with _read_errors(collection), closing(open_client(options, raw=True)) as client:
                for number in _numbers_in(batches):
                    now = operation_time(client)
                    read_at = at if now[0] - at[0] < _MAX_AGE_SECONDS else now
                    total = RangeDigest()
                    for documents in read_range(client, collection, ranges[number], read_at, reading):
                        total += RangeDigest.of(documents)
                    times = [pa.array([time], pa.int64()) for time in read_at]
                    columns = [*sums_batch({number: total}).columns, *times]
                    yield pa.RecordBatch.from_arrays(columns, schema=_READS)

        return run

    def _document_mapper(self, collection: Collection, at: tuple[int, int]) -> Batches:
        # Without the pace: the server keeps the past for five minutes only, and the caller waits afterwards.
        options, ranges, reading = self.options, tuple(self.ranges), replace(self.reading, pace=None)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with _read_errors(collection), closing(open_client(options, raw=True)) as client:
                for number in _numbers_in(batches):
                    for documents in read_range(client, collection, ranges[number], at, reading):
                        yield source_batch(documents, [document_merge_key(document) for document in documents])

        return run


@contextmanager
def _read_errors(collection: Collection) -> Iterator[None]:
    try:
        yield
    except RetriableError as error:
        raise _unread(collection) from error


def _unread(collection: Collection | None) -> RetriableError:
    return RetriableError(
        f"{collection} could not be read from the source at one cluster time",
        next_step="strandline reconcile again; a source that is short of history needs a larger "
        "minSnapshotHistoryWindowInSeconds",
    )


def _numbers_in(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("number").to_pylist()
