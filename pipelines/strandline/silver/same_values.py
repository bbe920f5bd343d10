"""Which rows of two columns have the same value. Arrow compares no structs and no lists. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Flags = NDArray[np.bool_]


def same_values(one: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> Flags:
    """Return for each row whether both columns, of one type and length, have the same value.

    Null is a value. Floating-point numbers are the same if their bits are: ``-0.0`` is not ``0.0``.
    """
    one, other = _whole(one), _whole(other)
    is_valid = [column.is_valid().to_numpy(zero_copy_only=False) for column in (one, other)]
    is_same: Flags = is_valid[0] == is_valid[1]
    rows = np.flatnonzero(is_valid[0] & is_valid[1])
    is_same[rows] = _same_valid(one.take(pa.array(rows)), other.take(pa.array(rows)))
    return is_same


def _whole(column: pa.Array | pa.ChunkedArray) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _same_valid(one: Any, other: Any) -> Flags:
    """Return `same_values` of columns without nulls."""
    kind = one.type
    if pa.types.is_struct(kind):
        parts = [same_values(*(pc.struct_field(rows, [place]) for rows in (one, other))) for place in range(len(kind))]
        return np.logical_and.reduce(parts) if parts else np.ones(len(one), bool)
    if pa.types.is_list(kind):
        return _same_lists(one, other)
    if pa.types.is_floating(kind):
        bits = pa.int64() if kind.bit_width == 64 else pa.int32()
        one, other = one.view(bits), other.view(bits)
    equal: Flags = pc.equal(one, other).to_numpy(zero_copy_only=False)
    return equal


def _same_lists(one: Any, other: Any) -> Flags:
    lengths = pc.list_value_length(one).to_numpy()
    is_same: Flags = lengths == pc.list_value_length(other).to_numpy()
    rows = np.flatnonzero(is_same & (lengths > 0))
    if len(rows):
        elements = same_values(*(pc.list_flatten(lists.take(pa.array(rows))) for lists in (one, other)))
        firsts = np.cumsum(lengths[rows]) - lengths[rows]
        is_same[rows] = np.logical_and.reduceat(elements, firsts)
    return is_same
