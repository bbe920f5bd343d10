"""The documents in the envelopes of a batch, and batches of bounded size. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch
from strandline.model.bson.columnar.tree import Documents
from strandline.silver.decode.columns import Part, assembled
from strandline.silver.decode.document import document_in, with_id_first

_MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_ROWS: Final = 5_000
"""Limits of a part. In larger parts a document takes two to three times as long: they do not fit the caches."""


def small_parts(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """Cut each batch into parts of a few megabytes of *column*, or of one row."""
    for batch in batches:
        ends = np.cumsum(pc.binary_length(batch[column]).fill_null(0))
        start = before = 0
        while start < len(batch):
            stop = int(np.searchsorted(ends, before + _MOST_BYTES, "right"))
            stop = min(max(stop, start + 1), start + _MOST_ROWS)
            yield batch.slice(start, stop - start)
            start, before = stop, int(ends[stop - 1])


def documents_in(ops: pa.Array, envelopes: pa.Array) -> pa.Array:
    """Return the document in each envelope, as `document_in` does. Null: there is none."""
    is_read = pc.equal(ops, "r")
    if pc.all(is_read, skip_nulls=False).as_py():
        return _with_ids_first(envelopes)
    reads = np.flatnonzero(is_read.fill_null(False))
    events = np.flatnonzero(pc.and_(pc.invert(is_read).fill_null(False), envelopes.is_valid()))
    parts = _in_events(envelopes.take(pa.array(events)))
    parts = [(reads, envelopes.take(pa.array(reads))), *((events[rows], documents) for rows, documents in parts)]
    return _with_ids_first(assembled(parts, pa.binary(), len(ops)))


def _in_events(events: pa.Array) -> list[Part]:
    """Return the documents in events. Events that leave the batch are read one by one."""
    batch = BsonBatch(events)
    field = Documents.of(batch).fields.get("fullDocument", {})
    parts = [(field[rb.DOCUMENT].rows, field[rb.DOCUMENT].whole())] if rb.DOCUMENT in field else []
    others = pa.array([document_in("u", event) for event in batch.left()], pa.binary())
    return [*parts, (np.flatnonzero(batch.has_left), others)]


def _with_ids_first(documents: pa.Array) -> pa.Array:
    """Return each document with ``_id`` as its first field (`with_id_first`)."""
    is_first = pc.equal(pc.binary_slice(documents, 5, 9), b"_id\0").fill_null(True)
    others = np.flatnonzero(pc.invert(is_first))
    if not len(others):
        return documents
    moved = [with_id_first(documents[row].as_py()) for row in others.tolist()]
    rows = np.arange(len(documents))
    return assembled([(rows, documents), (others, pa.array(moved, pa.binary()))], pa.binary(), len(documents))
