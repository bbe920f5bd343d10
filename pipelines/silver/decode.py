"""From raw BSON to the values of typed columns. Pure; runs on the executors.

A value that fits its column is never changed; a value that does not is not dropped but rescued: by path, with its BSON type.
"""

from __future__ import annotations

import json
import struct
import uuid
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from bson.decimal128 import Decimal128

from pipelines.model import raw_bson as rb
from pipelines.model.poison import LARGEST_JSON, LONGEST_NAME, trouble_with_names
from pipelines.model.shape import Shape
from pipelines.silver.census import binary_kind

Rescued = dict[str, dict[str, Any]]
Scalar = Callable[[bytes, int, int], Any]
"""Reads ``raw[start:end]``; raises `Misfit`."""

_int32 = struct.Struct("<i").unpack_from
_int64 = struct.Struct("<q").unpack_from
_double = struct.Struct("<d").unpack_from

_LARGEST_BYTES = 14_000_000  # in base64 still less than the longest text that Jackson takes
_SHOWN_OF_A_NAME = 100

# Milliseconds of years 1 and 9999: what a TIMESTAMP can hold.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


class Misfit(Exception):
    """The value does not fit its column; it must be rescued."""


class Decoder:
    """Decodes documents of one shape.

    Args:
        shape: The table's root; columns come in its order.
    """

    def __init__(self, shape: Shape) -> None:
        self.names = [name for name, _ in shape.columns()]
        self._whole = next((name for name, inner in shape.columns() if inner.kind == "whole"), None)
        self._columns = _Fields(shape, keeps_unknown=self._whole is not None)

    def decode(self, document: bytes) -> tuple[list[Any], str | None]:
        """One value for each column, and what was rescued as the JSON of ``{path: {"type": …, "value": …}}`` (None: all fit).

        Raises:
            MalformedBson: The document is damaged.
        """
        rescued: Rescued = {}
        found = self._columns.read(document, 0, "", rescued)
        if self._whole is not None:
            found[self._whole] = variant_text(document, rb.DOCUMENT, 0, len(document))
        return [found.get(name) for name in self.names], json.dumps(rescued) if rescued else None


# What reads a shape is put together once, not asked for at each of its values: a document has dozens.


class _Fields:
    """Reads the fields of a document, at any level.

    Args:
        keeps_unknown: A field without a column need not be rescued: another column holds it.
    """

    kind = rb.DOCUMENT

    def __init__(self, shape: Shape, *, keeps_unknown: bool = False) -> None:
        known = ((shape.field_of(name), name, inner) for name, inner in shape.columns() if inner.kind != "whole")
        self._fields = {field.encode(): (field, name, _Value(inner)) for field, name, inner in known}
        self._keeps_unknown = keeps_unknown

    def read(self, raw: bytes, start: int, prefix: str, rescued: Rescued) -> dict[str, Any]:
        values: dict[str, Any] = {}
        fields = self._fields
        for kind, name, value, end in rb.elements(raw, start):
            known = fields.get(name)
            if known is not None and known[1] not in values:
                own, key, column = known
                values[key] = column.read(raw, kind, value, end, prefix, own, rescued)
            elif known is not None or not self._keeps_unknown:
                _rescue(rescued, prefix + name.decode("utf-8", "backslashreplace"), raw, kind, value, end)
        return values


class _Elements:
    """Reads the elements of an array, all of one shape."""

    kind = rb.ARRAY

    def __init__(self, shape: Shape) -> None:
        self._element = _Value(shape)

    def read(self, raw: bytes, start: int, prefix: str, rescued: Rescued) -> list[Any]:
        read = self._element.read
        found = enumerate(rb.elements(raw, start))
        return [read(raw, kind, value, end, prefix, index, rescued) for index, (kind, _, value, end) in found]


class _Value:
    """Reads one value of a shape, or rescues it."""

    def __init__(self, shape: Shape) -> None:
        self._scalars = _scalars(shape)
        self._nested: _Fields | _Elements | None = None
        if shape.kind == "struct":
            self._nested = _Fields(shape)
        elif shape.kind == "array" and shape.element is not None:
            self._nested = _Elements(shape.element)

    def read(self, raw: bytes, kind: int, value: int, end: int, prefix: str, name: str | int, rescued: Rescued) -> Any:
        scalar = self._scalars.get(kind)
        if scalar is not None:
            try:
                return scalar(raw, value, end)
            except Misfit:
                pass
        elif self._nested is not None and kind == self._nested.kind:
            return self._nested.read(raw, value, f"{prefix}{name}.", rescued)
        _rescue(rescued, f"{prefix}{name}", raw, kind, value, end)
        return None


def _rescue(rescued: Rescued, path: str, raw: bytes, kind: int, value: int, end: int) -> None:
    if kind == rb.NULL:
        return  # a null is what the column shows anyway; `_document` tells null from missing
    unique = path if len(path) <= LONGEST_NAME else path[:_SHOWN_OF_A_NAME] + "…"
    while unique in rescued:  # the second of two equal names in one document
        unique += "'"
    rescued[unique] = {"type": rb.TYPE_NAMES[kind], "value": json.loads(variant_text(raw, kind, value, end))}


def variant_text(raw: bytes, kind: int, value: int, end: int) -> str:
    """JSON that Spark's `parse_json` takes: canonical Extended JSON, or ``{"$bson": base64}`` of ``{v: value}`` for what it refuses.

    Refused are duplicate names in one document and names of more than 50,000 bytes, invalid UTF-8, and values whose JSON exceeds 16 MiB.
    Of what is too large even so, ``{"$bytes": size}``: ``_document`` has it.
    """
    payload = raw[value:end]
    try:
        if kind not in (rb.DOCUMENT, rb.ARRAY) or trouble_with_names(raw, value) is None:
            text = rb.canonical_value(kind, payload)
            if len(text) <= LARGEST_JSON:
                return text
    except ValueError:  # libbson refuses it: the bytes are kept as they are
        pass
    if len(payload) > _LARGEST_BYTES:
        return json.dumps({"$bytes": len(payload)})
    return json.dumps({"$bson": b64encode(rb.as_document(kind, payload)).decode("ascii")})


def _string(raw: bytes, value: int, end: int) -> str:
    try:
        return raw[value + 4 : end - 1].decode()
    except UnicodeDecodeError:
        raise Misfit from None


def _date(raw: bytes, value: int, _end: int) -> int:
    milliseconds: int = _int64(raw, value)[0]
    if not _FIRST_MS <= milliseconds <= _LAST_MS:
        raise Misfit
    return milliseconds * 1000


def _bytes(raw: bytes, value: int, end: int) -> bytes:
    if binary_kind(raw, value, end) != "binary":
        raise Misfit
    return raw[value + 5 : end]


def _uuid(raw: bytes, value: int, end: int) -> str:
    if binary_kind(raw, value, end) != "uuid":
        raise Misfit
    return str(uuid.UUID(bytes=raw[value + 5 : end]))


def _null(_raw: bytes, _value: int, _end: int) -> None:
    return None


def _scalars(shape: Shape) -> dict[int, Scalar]:
    """How a value of each BSON type that *shape* takes is read; what is not among them is nested, or does not fit."""
    readers: dict[int, Scalar] = {kind: read for (name, kind), read in _SCALARS.items() if name == shape.kind}
    if shape.kind in ("variant", "json"):
        readers = {kind: _variant(kind) for kind in rb.TYPE_NAMES}
    if shape.kind == "decimal":
        readers = {kind: _decimal(kind, shape.scale) for kind in (rb.DECIMAL128, rb.INT32, rb.INT64)}
    return readers | {rb.NULL: _null}


def _variant(kind: int) -> Scalar:
    return lambda raw, value, end: variant_text(raw, kind, value, end)


def _decimal(kind: int, scale: int) -> Scalar:
    """The number where DECIMAL(38,*scale*) holds it exactly; a misfit are NaN, infinities, a negative zero and digits too many."""
    whole = _WHOLE.get(kind)

    def read(raw: bytes, value: int, _end: int) -> Decimal:
        number = Decimal128.from_bid(raw[value : value + 16]).to_decimal() if whole is None else Decimal(whole(raw, value)[0])
        if not number.is_finite() or (number == 0 and number.is_signed()):
            raise Misfit
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)  # finite
        if -exponent > scale or number.adjusted() + 1 > 38 - scale:
            raise Misfit
        return number

    return read


_WHOLE = {rb.INT32: _int32, rb.INT64: _int64}

_SCALARS: dict[tuple[str, int], Scalar] = {
    ("int", rb.INT32): lambda raw, value, _end: _int32(raw, value)[0],
    ("long", rb.INT32): lambda raw, value, _end: _int32(raw, value)[0],
    ("long", rb.INT64): lambda raw, value, _end: _int64(raw, value)[0],
    ("double", rb.DOUBLE): lambda raw, value, _end: _double(raw, value)[0],
    ("double", rb.INT32): lambda raw, value, _end: float(_int32(raw, value)[0]),
    ("string", rb.STRING): _string,
    ("objectId", rb.OBJECT_ID): lambda raw, value, end: raw[value:end].hex(),
    ("bool", rb.BOOLEAN): lambda raw, value, _end: raw[value] == 1,
    ("date", rb.DATE): _date,
    ("binary", rb.BINARY): _bytes,
    ("uuid", rb.BINARY): _uuid,
}
