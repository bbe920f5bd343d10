"""Arrays of numbers, read without a walk. Pure.

Where all elements have one type of a fixed size, and their keys count from zero, the bytes of an array tell how many
elements it has and where each of them is. Whether the type and the key of an element really stand there is checked for
all elements of all arrays at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch, Ints

_MOST_ELEMENTS: Final = 2**16
"""Maximum elements of such an array."""


@dataclass(frozen=True)
class Elements:
    """Some elements of arrays."""

    rows: Ints
    """Index of the array of each."""
    numbers: Ints | int
    """Number of each in its array, or the one number of all."""
    kinds: NDArray[np.uint8]
    """BSON type of each; of length one if all have the same."""
    starts: Ints
    ends: Ints


def numbers_in(batch: BsonBatch, kind: int, starts: Ints, ends: Ints) -> Elements:
    """Return the elements of those arrays whose elements all have this type, which has a fixed size."""
    size, sizes = rb.FIXED_SIZES[kind], ends - starts - rb.EMPTY
    keys = _keys(min(1 << (int(sizes.max()) // (size + 3)).bit_length(), _MOST_ELEMENTS))
    offsets = np.arange(len(keys.offsets)) * (1 + size) + keys.offsets
    counts = np.minimum(np.searchsorted(offsets, sizes), len(offsets) - 1)
    counts[(offsets[counts] != sizes) | (batch.uint8[ends - 1] != 0)] = 0
    rows = np.repeat(np.arange(len(starts)), counts)
    numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = starts[rows] + 4 + offsets[numbers]
    is_right = (batch.uint8[at] == kind) & (batch.uint64[at + 1] & keys.masks[numbers] == keys.words[numbers])
    if not is_right.all():
        is_whole = np.bincount(rows, ~is_right, len(starts)) == 0
        rows, numbers, at = (array[is_whole[rows]] for array in (rows, numbers, at))
    values = at + 1 + keys.sizes[numbers]
    return Elements(rows, numbers, np.array([kind], np.uint8), values, values + size)


@dataclass(frozen=True)
class _Keys:
    """Keys of an array's elements: ``0``, ``1``, …, each with its zero byte."""

    words: NDArray[np.uint64]
    masks: NDArray[np.uint64]
    """Bits of the word that belong to the key."""
    sizes: Ints
    offsets: Ints
    """Bytes of all keys before each one; at the end, of all."""


@lru_cache(maxsize=20)
def _keys(count: int) -> _Keys:
    keys = [b"%d\0" % number for number in range(count)]
    sizes = np.array([len(key) for key in keys], np.int64)
    words = np.frombuffer(b"".join(key.ljust(8, b"\0") for key in keys), "<u8")
    masks = (np.uint64(1) << (8 * sizes).astype(np.uint64)) - np.uint64(1)
    return _Keys(words, masks, sizes, np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes))))
