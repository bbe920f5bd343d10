"""The bytes of a batch of documents, read as numbers at any offsets. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Leave = Callable[[Ints], None]
"""Marks documents that leave the batch, by their rows in a walk."""

LONGEST_NAME: Final = 255
"""Maximum bytes of a name. A document with a longer one leaves the batch."""

_PADDING: Final = bytes(LONGEST_NAME + 33)
"""Bytes after the last document: a name and a number are read before their ends are checked."""


class BsonBatch:
    """Documents of one batch.

    Args:
        documents: Array of the type binary, without nulls.
    """

    def __init__(self, documents: pa.Array) -> None:
        _, offsets, content = documents.buffers()
        bounds = np.zeros(1, np.int64)
        if len(documents):
            bounds = np.frombuffer(offsets, np.int32, len(documents) + 1, 4 * documents.offset).astype(np.int64)
        first, last = bounds[0], bounds[-1]
        self.raw = b"".join((memoryview(content or b"")[first:last], _PADDING))
        self.starts: Ints = bounds[:-1] - first
        self.ends: Ints = bounds[1:] - first
        self.has_left: Flags = np.zeros(len(documents), np.bool_)
        """True for each document that must be read in another way."""
        self.uint8 = np.frombuffer(self.raw, np.uint8)
        self.uint64 = self.items("<u8")
        self._int32 = self.items("<i4")

    def __len__(self) -> int:
        return len(self.starts)

    def left(self) -> list[bytes]:
        """Return the documents that have left the batch. All are known when all that is needed has been read."""
        return [self.raw[self.starts[row] : self.ends[row]] for row in np.flatnonzero(self.has_left)]

    def items(self, kind: str) -> NDArray[Any]:
        """Return a view of the bytes that has an item of this type at every offset."""
        size = np.dtype(kind).itemsize
        return np.ndarray((len(self.raw) - size + 1,), kind, self.raw, strides=(1,))

    def int32(self, at: Ints) -> Ints:
        return self._int32[at].astype(np.int64)

    def name_at(self, at: int) -> bytes:
        """Return the name at this offset, with its zero byte."""
        return self.raw[at : self.raw.index(b"\0", at) + 1]

    def holds(self, at: Ints, name: bytes) -> Flags:
        """Return a flag for each offset: True if *name*, with its zero byte, stands there."""
        flags = np.ones(len(at), np.bool_)
        for start in range(0, len(name), 8):
            part = name[start : start + 8]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            flags &= self.uint64[at + start] & mask == np.uint64(int.from_bytes(part, "little"))
        return flags

    def binaries(self, starts: Ints, ends: Ints) -> pa.Array:
        """Return the bytes between *starts* and *ends*, which ascend and do not overlap.

        Arrow copies them: it sees these spans and the gaps between them as the items of one array.
        """
        bounds = np.empty(2 * len(starts), np.int32)
        bounds[0::2], bounds[1::2] = starts, ends
        spans_and_gaps = pa.Array.from_buffers(
            pa.binary(), max(len(bounds) - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(self.raw)]
        )
        return spans_and_gaps.take(pa.array(np.arange(0, len(bounds), 2)))
