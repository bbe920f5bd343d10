"""The elements of arrays, in the order of their arrays. Pure."""

from __future__ import annotations

import numpy as np

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch, Ints, Leave
from strandline.model.bson.columnar.fields import Field, split_by_type
from strandline.model.bson.columnar.number_arrays import Elements, numbers_in
from strandline.model.bson.columnar.walk import Cursors


def read_elements(batch: BsonBatch, starts: Ints, ends: Ints, leave: Leave) -> tuple[Ints, Field]:
    """Return the offset of each array among all elements, and the elements: their rows are their numbers among all."""
    parts, is_read = list[Elements](), np.zeros(len(starts), np.bool_)
    first_kinds = batch.uint8[starts + 4]
    for kind in np.flatnonzero(np.bincount(first_kinds)).tolist():
        if rb.FIXED_SIZES.get(kind):
            rows = np.flatnonzero(first_kinds == kind)
            parts.append(_of(rows, numbers_in(batch, kind, starts[rows], ends[rows])))
            is_read[parts[-1].rows] = True
    rows = np.flatnonzero(~is_read)
    walked = _walked(batch, starts[rows], ends[rows], lambda some: leave(rows[some]))
    parts += [_of(rows, step) for step in walked]
    counts = sum((np.bincount(part.rows, minlength=len(starts)) for part in parts), np.zeros(len(starts), np.int64))
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return offsets, _in_order(parts, offsets)


def _of(rows: Ints, elements: Elements) -> Elements:
    """Return elements of the arrays in *rows* as elements of all arrays."""
    return Elements(rows[elements.rows], elements.numbers, elements.kinds, elements.starts, elements.ends)


def _walked(batch: BsonBatch, starts: Ints, ends: Ints, leave: Leave) -> list[Elements]:
    """Return the elements of arrays of any values. The i-th elements of all arrays are one step."""
    cursors, elements = Cursors(batch, starts, ends, leave), list[Elements]()
    while cursors.are_live():
        key = b"%d\0" % len(elements)
        cursors.drop(~batch.holds(cursors.at + 1, key))
        step = cursors.read(len(key))
        elements.append(Elements(step.rows, len(elements), step.kinds, step.starts, step.ends))
    return elements


def _in_order(parts: list[Elements], offsets: Ints) -> Field:
    rows: Ints = np.arange(int(offsets[-1]))
    if len(parts) == 1 and len(parts[0].rows) == len(rows) and not isinstance(parts[0].numbers, int):
        return split_by_type(rows, parts[0].kinds, parts[0].starts, parts[0].ends)
    kinds, starts, ends = np.empty(len(rows), np.uint8), np.empty_like(rows), np.empty_like(rows)
    for part in parts:
        places = offsets[part.rows] + part.numbers
        kinds[places], starts[places], ends[places] = part.kinds, part.starts, part.ends
    return split_by_type(rows, kinds, starts, ends)
