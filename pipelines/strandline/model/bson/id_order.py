"""MongoDB's sort order of `_id`s across BSON types, as a key that Python can compare.

The order only assigns documents to ranges. If it is wrong, as with a collation, two ranges are compared in more detail
than needed. The result stays correct.

Source: https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch, Ints

_NUMBER, _TEXT = 3, 4
_INTEGERS: Final = ((rb.INT32, "<i4"), (rb.INT64, "<i8"))
_LARGEST: Final = 2**63
_BRACKETS = {
    rb.MIN_KEY: 0,
    rb.UNDEFINED: 1,
    rb.NULL: 2,
    rb.INT32: _NUMBER,
    rb.INT64: _NUMBER,
    rb.DOUBLE: _NUMBER,
    rb.DECIMAL128: _NUMBER,
    rb.STRING: _TEXT,
    rb.SYMBOL: _TEXT,
    rb.DOCUMENT: 5,
    rb.ARRAY: 6,
    rb.BINARY: 7,
    rb.OBJECT_ID: 8,
    rb.BOOLEAN: 9,
    rb.DATE: 10,
    rb.TIMESTAMP: 11,
    rb.REGEX: 12,
    rb.DB_POINTER: 13,
    rb.CODE: 14,
    rb.CODE_WITH_SCOPE: 15,
    rb.MAX_KEY: 16,
}


def id_order(document: bytes) -> tuple[Any, ...]:
    """Return the sort key of a document: its `_id`. Raises MalformedBson if it has none."""
    return _order(document, *_id_of(document))


def id_document(document: bytes) -> bytes:
    """Return the document ``{_id: value}`` with a document's `_id`. Raises MalformedBson if it has none."""
    kind, value, end = _id_of(document)
    return rb.as_document(kind, document[value:end], b"_id")


def _id_of(document: bytes) -> tuple[int, int, int]:
    field = rb.field(document, b"_id")
    if field is None:
        raise rb.MalformedBson("a document has no _id")
    return field


def _order(raw: bytes, kind: int, value: int, end: int) -> tuple[Any, ...]:
    """Return the sort key of a value: the rank of its type, then its comparable content."""
    bracket = _BRACKETS[kind]
    if bracket == _NUMBER:
        number = _number(raw, kind, value)
        return (bracket, not number.is_nan(), Decimal(0) if number.is_nan() else number)
    if kind in (rb.DOCUMENT, rb.ARRAY):
        return (bracket, tuple(_element(raw, *element) for element in rb.elements(raw, value)))
    if kind == rb.BINARY:
        return (bracket, rb.int32_at(raw, value), raw[value + 4 : end])
    if kind == rb.DATE:
        return (bracket, rb.int64_at(raw, value))
    if kind == rb.TIMESTAMP:
        return (bracket, *rb.timestamp_at(raw, value))
    return (bracket, raw[value + 4 : end - 1] if bracket == _TEXT else raw[value:end])


def _element(raw: bytes, kind: int, name: bytes, value: int, end: int) -> tuple[Any, ...]:
    """Return the sort key of a field. Fields of embedded documents compare by type, then by name, then by value."""
    order = _order(raw, kind, value, end)
    return (order[0], name, order)


def _number(raw: bytes, kind: int, value: int) -> Decimal:
    if kind == rb.INT32:
        return Decimal(rb.int32_at(raw, value))
    if kind == rb.INT64:
        return Decimal(rb.int64_at(raw, value))
    if kind == rb.DOUBLE:
        return Decimal(struct.unpack_from("<d", raw, value)[0])
    return rb.decimal_at(raw, value)


class RangeFinder:
    """Finder of a document's range, among the ranges that cover a collection.

    Args:
        bounds: Bounds between the ranges, as documents ``{_id: value}``, in the server's order.
    """

    def __init__(self, bounds: Sequence[bytes]) -> None:
        self._bounds = [id_order(bound) for bound in bounds]
        object_ids, numbers = (self._bounds_of(kind) for kind in (_BRACKETS[rb.OBJECT_ID], _NUMBER))
        self._usual = [(rb.OBJECT_ID, "S12", np.array([bound[1] for bound in object_ids[0]], "S12"), object_ids[1])]
        if all(is_number and -_LARGEST < number < _LARGEST and not number % 1 for _, is_number, number in numbers[0]):
            whole = np.array([int(bound[-1]) for bound in numbers[0]], np.int64)
            self._usual += [(kind, item, whole, numbers[1]) for kind, item in _INTEGERS]

    def _bounds_of(self, bracket: int) -> tuple[list[tuple[Any, ...]], int]:
        """Return the bounds of one bracket, and the number of those before it."""
        first, end = (bisect_left(self._bounds, (edge,)) for edge in (bracket, bracket + 1))
        return self._bounds[first:end], first

    def number(self, document: bytes) -> int:
        """Return the number of the document's range, from 0. A range includes its lower bound, not its upper bound."""
        return bisect_right(self._bounds, id_order(document))

    def numbers(self, documents: pa.Array) -> Ints:
        """Return `number` of each document. ObjectIds and whole numbers, the usual `_id`s, are looked up together."""
        batch, numbers = BsonBatch(documents), np.empty(len(documents), np.int64)
        kinds = batch.uint8[batch.starts + 4]
        is_left = np.ones(len(documents), np.bool_)
        for kind, item, bounds, first in self._usual:
            rows = np.flatnonzero((kinds == kind) & batch.holds(batch.starts + 5, b"_id\0"))
            numbers[rows] = first + np.searchsorted(bounds, batch.items(item)[batch.starts[rows] + 9], "right")
            is_left[rows] = False
        for row in np.flatnonzero(is_left).tolist():
            numbers[row] = self.number(documents[row].as_py())
        return numbers
