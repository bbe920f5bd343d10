"""Bronze rows of snapshots and of single documents that were read again. Pure: bytes in, Arrow out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import pyarrow as pa

from strandline.bronze.envelope import TIME, Stamp, constant_source, constant_time, filled
from strandline.bronze.json_columns import json_columns
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.position import snapshot_position
from strandline.model.table_schemas import READ_CAPPED


@dataclass(frozen=True)
class ChunkStamp:
    """Values shared by all READ rows of one chunk."""

    stamp: Stamp
    snapshot_id: str
    chunk: int
    db: str
    collection: str
    collection_uuid: str | None
    seconds: int
    increment: int
    """Cluster time L at which the chunk was read."""
    kind: Literal["true", "incremental"] = "true"
    """Value of ``source.snapshot``."""
    capped: bool = False
    """True if documents may be newer than L: the collection is capped, or the server is older than 5.0."""

    @staticmethod
    def of_control(stamp: Stamp, snapshot_id: str, chunk: int = -1) -> ChunkStamp:
        """Return the values of a control row of a snapshot. *chunk*: -1 for the snapshot as a whole."""
        return ChunkStamp(stamp, snapshot_id, chunk, "", "", None, 0, 0)

    @property
    def position(self) -> str:
        return snapshot_position(self.seconds, self.increment)


def read_table(
    documents: Sequence[bytes], chunk: ChunkStamp, *, stored_json: bool, keys: Sequence[str] | None = None
) -> pa.Table:
    """Return one ``r`` row for each snapshot document.

    Args:
        keys: MERGE key of each document. None: from its `_id`.

    Raises:
        MalformedBson: A document has no `_id`. A server stores no such document.
    """
    size = len(documents)
    columns = _read_columns(chunk, size) | {
        "key": list(map(document_merge_key, documents) if keys is None else keys),
        "document_size": [len(document) for document in documents],
        "envelope": pa.array(documents, pa.binary()),
    }
    if stored_json:
        columns |= json_columns(("r", document) for document in documents)
    return filled(columns, size)


def absent_table(keys: Sequence[str], chunk: ChunkStamp) -> pa.Table:
    """Return a delete row for each `_id` that was looked up and missing at the chunk's cluster time."""
    size = len(keys)
    columns = _chunk_columns(chunk, size, "d") | {
        "operation_type": pa.repeat(pa.scalar("absent"), size),
        "position": pa.repeat(pa.scalar(chunk.position), size),
        "key": list(keys),
    }
    return filled(columns, size)


def manifest_table(chunk: ChunkStamp, operation_type: str, manifest: str) -> pa.Table:
    """Return a control row of a snapshot: ``plan`` (chunks of each collection), ``chunk`` (content of a chunk), …

    Args:
        manifest: JSON for the column ``after``.
    """
    columns: dict[str, object] = {"operation_type": [operation_type], "after": [manifest]}
    if chunk.seconds:
        columns["position"] = [chunk.position]
    return filled(_chunk_columns(chunk, 1, "snapshot") | columns, 1)


@lru_cache(maxsize=4)
def _read_columns(chunk: ChunkStamp, size: int) -> dict[str, object]:
    """Return constant columns. Cached: many lists of a chunk have the same number of documents, the maximum."""
    word = READ_CAPPED if chunk.capped else "read"
    columns = {
        "operation_type": pa.repeat(pa.scalar(word), size),
        "position": pa.repeat(pa.scalar(chunk.position), size),
    }
    return _chunk_columns(chunk, size, "r") | columns


def _chunk_columns(chunk: ChunkStamp, size: int, op: str) -> dict[str, object]:
    return {
        "op": pa.repeat(pa.scalar(op), size),
        "db": pa.repeat(pa.scalar(chunk.db), size),
        "collection": pa.repeat(pa.scalar(chunk.collection), size),
        "collection_uuid": pa.repeat(pa.scalar(chunk.collection_uuid, pa.string()), size),
        "source": constant_source(chunk.stamp, size, chunk.kind),
        "cluster_time": pa.repeat(pa.scalar(chunk.seconds * 1_000_000, pa.int64()), size).cast(TIME),
        "captured_at": constant_time(chunk.stamp, size),
        "snapshot_id": pa.repeat(pa.scalar(chunk.snapshot_id), size),
        "chunk": pa.repeat(pa.scalar(chunk.chunk, pa.int32()), size),
        "writer": pa.repeat(pa.scalar(chunk.stamp.writer), size),
    }
