"""End of a value, by its BSON type. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch, Flags, Ints

_NEVER: Final = 2**40
"""A length that no value has."""
_SMALLEST: Final = {
    rb.STRING: 1,
    rb.CODE: 1,
    rb.SYMBOL: 1,
    rb.DB_POINTER: 1,
    rb.DOCUMENT: rb.EMPTY,
    rb.ARRAY: rb.EMPTY,
    rb.CODE_WITH_SCOPE: 4 + 5 + rb.EMPTY,
    rb.BINARY: 0,
}

_sizes = rb.FIXED_SIZES | rb.BEYOND_LENGTH
_BESIDE_LENGTH: Final = np.array([_sizes.get(kind, 0) for kind in range(256)], np.int64)
"""Bytes of a value that its length does not count; all bytes, if it has no length."""
_HAS_LENGTH: Final = np.array([kind not in rb.FIXED_SIZES for kind in range(256)], np.int64)
_LEAST: Final = np.array([0 if kind in rb.FIXED_SIZES else _SMALLEST.get(kind, _NEVER) for kind in range(256)])


def value_ends(batch: BsonBatch, kinds: NDArray[np.uint8], starts: Ints) -> tuple[Ints, Flags]:
    """Return the end of each value, and a flag for each: True if its length is possible.

    No length is possible for an unknown type, and for a regular expression, which has none.

    Args:
        kinds: BSON types, or the one type of all.
    """
    if len(kinds) == 1 and not _HAS_LENGTH[kinds[0]]:
        return starts + _BESIDE_LENGTH[kinds[0]], np.ones(len(starts), np.bool_)
    lengths = batch.int32(starts) * _HAS_LENGTH[kinds]
    return starts + lengths + _BESIDE_LENGTH[kinds], lengths >= _LEAST[kinds]
