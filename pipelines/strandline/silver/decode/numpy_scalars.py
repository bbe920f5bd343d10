"""Readers of many values of one BSON type at once. They read the same as the readers of single values. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import Flags, Ints
from strandline.model.bson.columnar.decimals import Decimals
from strandline.model.bson.columnar.tree import Values
from strandline.model.shape import Shape
from strandline.silver.decode.scalars import FIRST_MS, LAST_MS, Misfit, Scalar, scalars_of
from strandline.silver.schema.census import UUID_SUBTYPE

Reading = tuple[pa.Array, Flags | None]
"""One item for each value, and the flags of the values that do not fit. None: all fit."""
Reader = Callable[[Values, Shape], Reading]

_HEX: Final = np.array([int.from_bytes(b"%02x" % byte, "little") for byte in range(256)], np.uint16)
_UUID_BYTES: Final = 5 + 16
_DASHES: Final = (8, 12, 16, 20)
_EXACT_DOUBLE: Final = 2**53
_TENS: Final = 10 ** np.arange(19)
_LARGEST: Final = (2**63 - 1) // _TENS
"""Largest whole number that can be multiplied by each power of ten."""


def reader_of(shape: Shape, kind: int) -> Reader | None:
    """Return the reader for values of this BSON type in a column of *shape*. None: none of them fits."""
    if shape.kind == "decimal" and kind == rb.DECIMAL128:
        return _decimal
    if (reader := _READERS.get((shape.kind, kind))) is not None:
        return reader
    return _one_by_one if kind in scalars_of(shape) else None


def _one_by_one(values: Values, shape: Shape) -> Reading:
    items, is_wrong = _read(values, np.arange(len(values)), scalars_of(shape)[values.kind])
    return pa.array(items, arrow_type(shape)), is_wrong


def _read(values: Values, places: Ints, scalar: Scalar) -> tuple[list[Any], Flags]:
    """Read some values with a reader of single values."""
    items, is_wrong = [], np.zeros(len(places), np.bool_)
    for at, place in enumerate(places.tolist()):
        try:
            items.append(scalar(values.batch.raw, int(values.starts[place]), int(values.ends[place])))
        except Misfit:
            items.append(None)
            is_wrong[at] = True
    return items, is_wrong


def _date(values: Values, _: Shape) -> Reading:
    milliseconds = values.items("<i8")
    is_wrong = (milliseconds < FIRST_MS) | (milliseconds > LAST_MS)
    return pa.array(milliseconds * 1000).view(pa.timestamp("us", tz="UTC")), is_wrong


def _double_of_long(values: Values, shape: Shape) -> Reading:
    numbers = values.items("<i8")
    if (numbers < -_EXACT_DOUBLE).any() or (numbers > _EXACT_DOUBLE).any():
        return _one_by_one(values, shape)
    return pa.array(numbers.astype(np.float64)), None


def _text(values: Values, _: Shape) -> Reading:
    return values.texts


def _binary(values: Values, _: Shape) -> Reading:
    return values.batch.binaries(values.starts + 5, values.ends), values.batch.uint8[values.starts + 4] != 0


def _object_id(values: Values, _: Shape) -> Reading:
    return _texts_of(_hexed(values.items("V12"))), None


def _uuid(values: Values, _: Shape) -> Reading:
    is_uuid = (values.batch.uint8[values.starts + 4] == UUID_SUBTYPE) & (values.ends - values.starts == _UUID_BYTES)
    digits = _hexed(values.items("V16", offset=5))
    return _texts_of(np.insert(digits, _DASHES, ord("-"), axis=1)), ~is_uuid


def _hexed(items: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the hexadecimal digits of each item, as one row of characters."""
    return _HEX[items.view(np.uint8)].view(np.uint8).reshape(len(items), 2 * items.dtype.itemsize)


def _texts_of(characters: NDArray[np.uint8]) -> pa.Array:
    count, size = characters.shape
    offsets = np.arange(0, count * size + 1, size, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters)))


def _decimal(values: Values, shape: Shape) -> Reading:
    """Read numbers below 2⁶³ together, all other numbers one by one."""
    parts = Decimals.of(values)
    shifts = parts.exponents + shape.scale
    is_small = parts.is_small & (shifts >= 0) & (shifts < len(_TENS))
    shifts = np.where(is_small, shifts, 0)
    is_small &= (parts.digits <= _LARGEST[shifts]) & ~(parts.is_negative & (parts.digits == 0))
    numbers = np.where(is_small, parts.digits, 0) * _TENS[shifts]
    decimals = _decimals(np.where(parts.is_negative, -numbers, numbers), shape)
    if is_small.all():
        return decimals, None
    others, is_other_wrong = _read(values, np.flatnonzero(~is_small), scalars_of(shape)[values.kind])
    is_wrong = np.zeros(len(values), np.bool_)
    is_wrong[~is_small] = is_other_wrong
    return pc.replace_with_mask(decimals, pa.array(~is_small), pa.array(others, arrow_type(shape))), is_wrong


def _decimals(numbers: Ints, shape: Shape) -> pa.Array:
    """Return whole numbers as the digits of decimals: Arrow holds them in 16 bytes."""
    low_and_high = np.stack((numbers, numbers >> 63), axis=1)
    return pa.Array.from_buffers(arrow_type(shape), len(numbers), [None, pa.py_buffer(low_and_high)])


_READERS: Final[dict[tuple[str, int], Reader]] = {
    ("int", rb.INT32): lambda values, _: (pa.array(values.items("<i4")), None),
    ("long", rb.INT32): lambda values, _: (pa.array(values.batch.int32(values.starts)), None),
    ("long", rb.INT64): lambda values, _: (pa.array(values.items("<i8")), None),
    ("double", rb.DOUBLE): lambda values, _: (pa.array(values.items("<f8")), None),
    ("double", rb.INT64): _double_of_long,
    ("double", rb.INT32): lambda values, _: (pa.array(values.items("<i4").astype(np.float64)), None),
    ("string", rb.STRING): _text,
    ("objectId", rb.OBJECT_ID): _object_id,
    ("bool", rb.BOOLEAN): lambda values, _: (pa.array(values.batch.uint8[values.starts] == 1), None),
    ("date", rb.DATE): _date,
    ("binary", rb.BINARY): _binary,
    ("uuid", rb.BINARY): _uuid,
}


_ARROW_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}


def arrow_type(shape: Shape) -> pa.DataType:
    """Return the Arrow type of a decoded column. Texts and VARIANTs are strings."""
    if shape.kind == "decimal":
        return pa.decimal128(38, shape.scale)
    if shape.kind == "struct":
        return pa.struct([(name, arrow_type(inner)) for name, inner in shape.columns()])
    if shape.kind == "array":
        assert shape.element is not None  # has_column
        return pa.list_(arrow_type(shape.element))
    return _ARROW_TYPES.get(shape.kind, pa.string())
