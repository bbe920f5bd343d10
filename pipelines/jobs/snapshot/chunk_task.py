"""Read one snapshot chunk as bronze rows. Runs in another process: on an executor, or beside capture without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa

from pipelines.bronze.chunk_rows import ChunkStamp, manifest_table, read_table
from pipelines.source.client import Collection, ConnectionOptions, open_client, operation_time
from pipelines.source.ranges import ChunkManifest, Range, ReadOptions, check_range, read_range


@dataclass(frozen=True)
class ChunkReader:
    """Reads *range* at one cluster time and yields its rows.

    Each row holds the cluster time. The last row is the manifest of the chunk.

    I/O: reads the source.

    Args:
        stored_json: Store each document as JSON, too.
    """

    options: ConnectionOptions
    collection: Collection
    range: Range
    stamp: ChunkStamp
    stored_json: bool
    reading: ReadOptions

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
            seconds, increment = operation_time(client)
            stamp = replace(self.stamp, seconds=seconds, increment=increment)
            manifest = ChunkManifest()
            for documents in read_range(client, self.collection, self.range, (seconds, increment), self.reading):
                manifest.add(documents)
                yield from read_table(documents, stamp, stored_json=self.stored_json).to_batches()
            yield from manifest_table(stamp, "chunk", manifest.to_json(self.range)).to_batches()
