"""Read a scheduled collection as bronze rows: only documents that differ from bronze, and those that are gone.

Runs in another process: on an executor, or beside capture without Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import sha256

import pyarrow as pa

from strandline.bronze.chunk_rows import ChunkStamp, absent_table, manifest_table, read_table
from strandline.model.schedule import UnusableKey, key_of
from strandline.source.client import Collection, ConnectionOptions, open_client, operation_time
from strandline.source.ranges import ChunkManifest, Range, ReadOptions
from strandline.source.scheduled_read import ReadRefused, read_whole, refusals

_ABSENT_AT_ONCE = 4_000


@dataclass(frozen=True)
class ScheduledReader:
    """Reads a whole collection and yields its rows: changed documents, gone documents, and the manifest.

    I/O: reads the source.

    Args:
        key: Fields of the document key.
        stored_json: Store each document as JSON, too.
        digests: Digest of each document that bronze has, by MERGE key. A document with an equal digest gets no row.
        deletes: Write a delete row for each key of *digests* that the collection lacks.
    """

    options: ConnectionOptions
    collection: Collection
    key: tuple[str, ...]
    stamp: ChunkStamp
    stored_json: bool
    reading: ReadOptions
    digests: Mapping[str, str] = field(repr=False)
    deletes: bool = True

    def check(self) -> None:
        """Read the collection in this process, and leave out the rows. Another process cannot raise the errors below.

        Raises:
            ReadRefused: The server refuses the read, or the documents have no usable key.
            RetriableError: The source does not answer.
        """
        for _ in self():
            pass

    def __call__(self) -> Iterator[pa.RecordBatch]:
        with closing(open_client(self.options, raw=True)) as client, refusals(self.collection):
            at, began = operation_time(client), time.monotonic()
            is_exact, lists = read_whole(client, self.collection, at, self.reading)
            stamp = replace(self.stamp, seconds=at[0], increment=at[1], capped=not is_exact)
            manifest, seen = ChunkManifest(), set[str]()
            for documents in lists:
                keys = self._new_keys(documents, seen)
                changed = [
                    pair
                    for pair in zip(keys, documents, strict=True)
                    if self.digests.get(pair[0]) != sha256(pair[1]).hexdigest()
                ]
                rows = [document for _, document in changed]
                manifest.add(rows)
                own_keys = [key for key, _ in changed]
                yield from read_table(rows, stamp, stored_json=self.stored_json, keys=own_keys).to_batches()
            gone = sorted(self.digests.keys() - seen) if self.deletes else []
            for start in range(0, len(gone), _ABSENT_AT_ONCE):
                yield from absent_table(gone[start : start + _ABSENT_AT_ONCE], stamp).to_batches()
            counts = {"read": len(seen), "gone": len(gone), "seconds": round(time.monotonic() - began, 3)}
            content = json.loads(manifest.to_json(Range())) | counts
            yield from manifest_table(stamp, "chunk", json.dumps(content, sort_keys=True)).to_batches()

    def _new_keys(self, documents: Sequence[bytes], seen: set[str]) -> list[str]:
        """Return the keys of *documents*, and add them to *seen*. Raises ReadRefused if one is unusable or repeated."""
        keys, before = [], len(seen)
        try:
            keys = [key_of(document, self.key) for document in documents]
        except UnusableKey as error:
            raise self._refusal(str(error)) from None
        seen.update(keys)
        if len(seen) < before + len(keys):
            raise self._refusal("two documents have the same key")
        return keys

    def _refusal(self, reason: str) -> ReadRefused:
        name = str(self.collection)
        return ReadRefused(
            f"{name} has no usable key {list(self.key)}: {reason}",
            next_step=f"set capture.scheduled.{name}.key to fields that identify each document",
        )
