"""Names of elements that stand at different offsets: their hashes and sizes. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from strandline.model.bson.columnar.batch import LONGEST_NAME, BsonBatch, Ints

Hashes = NDArray[np.uint64]

_ONES: Final = np.uint64(0x0101010101010101)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_ONE: Final = np.uint64(1)
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)


def hashed_names(batch: BsonBatch, at: Ints) -> tuple[Hashes, Ints]:
    """Return the hash of each name, and its bytes with the zero byte. The size 0 stands for a name that is too long.

    Names are read eight bytes at a time. The lowest high bit of ``(word - 0x01…) & ~word & 0x80…`` is that of the first
    zero byte.

    Source: https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord
    """
    hashes, sizes = np.zeros(len(at), np.uint64), np.zeros(len(at), np.int64)
    left = np.arange(len(at))
    for start in range(0, LONGEST_NAME + 1, 8):
        words = batch.uint64[at[left] + start]
        zeros = (words - _ONES) & ~words & _HIGH_BITS
        first = zeros & (~zeros + _ONE)
        mixed = (hashes[left] ^ (words & (first - _ONE))) * _FACTOR  # only the bytes before the zero byte
        hashes[left] = mixed ^ (mixed >> _SHIFT)
        ends = first != 0
        sizes[left[ends]] = start + (np.frexp(first[ends].astype(np.float64))[1] >> 3)
        left = left[~ends]
        if not len(left):
            break
    return hashes, sizes
