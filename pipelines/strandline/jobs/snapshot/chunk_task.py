"""Read one snapshot chunk as bronze rows. Runs in another process: on an executor, or beside capture without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.bronze.chunk_rows import ChunkStamp, manifest_table, read_table
from strandline.source.client import AnyClient, Collection, ConnectionOptions, open_client, operation_time
from strandline.source.errors import SnapshotExpired
from strandline.source.ranges import ChunkManifest, Range, ReadOptions, check_range, read_range


@dataclass(frozen=True)
class ChunkReader:
    """Reads *range* at one cluster time and yields its rows.

    Each row holds the cluster time. The last row is the manifest of the chunk.

    I/O: reads the source.

    Args:
        stored_json: Store each document as JSON, too.
        at: Cluster time to read at. None: the present.
        may_read_later: Read at the present if the server has dropped the state at *at* before the first document.
    """

    options: ConnectionOptions
    collection: Collection
    range: Range
    stamp: ChunkStamp
    stored_json: bool
    reading: ReadOptions
    at: tuple[int, int] | None = None
    may_read_later: bool = False

    def check(self) -> None:
        """Send the chunk's query to the source from this process. Another process cannot raise the errors below.

        I/O: reads the source.

        Raises:
            ConfigurationError: The source refuses the query.
            RetriableError: The source does not answer.
        """
        with closing(open_client(self.options, raw=True)) as client:
            check_range(client, self.collection, self.range, operation_time(client), self.reading)

    def __call__(self) -> Iterator[pa.RecordBatch]:
        with closing(open_client(self.options, raw=True)) as client:
            rows = self._rows(client, self.at or operation_time(client))
            try:
                first = next(rows)
            except SnapshotExpired:
                if not self.may_read_later:
                    raise
                rows = self._rows(client, operation_time(client))
                first = next(rows)
            yield first
            yield from rows

    def _rows(self, client: AnyClient, at: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        stamp, manifest = replace(self.stamp, seconds=at[0], increment=at[1]), ChunkManifest()
        for documents in read_range(client, self.collection, self.range, at, self.reading):
            manifest.add(documents)
            yield from read_table(documents, stamp, stored_json=self.stored_json).to_batches()
        yield from manifest_table(stamp, "chunk", manifest.to_json(self.range)).to_batches()
