"""One chunk of a snapshot as bronze rows: what another process runs, on an executor or beside capture. It needs no Spark."""

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
    """Called, it reads *range* at one cluster time L, stamps its rows with L, and closes with the manifest."""

    options: ConnectionOptions
    collection: Collection
    range: Range
    stamp: ChunkStamp
    stored_json: bool
    reading: ReadOptions

    def check(self) -> None:
        """I/O: asks the source for the same documents from here. Raises what a process elsewhere cannot: ConfigurationError where the
        source will never give them, RetriableError where it does not answer."""
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
