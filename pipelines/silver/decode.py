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
        columns = [(name, index, inner) for index, (name, inner) in enumerate(shape.columns())]
        self._fields = {name.encode(): (index, inner) for name, index, inner in columns if inner.kind != "whole"}
        self._whole = next((index for _, index, inner in columns if inner.kind == "whole"), None)

    def decode(self, document: bytes) -> tuple[list[Any], str | None]:
        """One value for each column, and what was rescued as the JSON of ``{path: {"type": …, "value": …}}`` (None: all fit).

        Raises:
            MalformedBson: The document is damaged.
        """
        values: list[Any] = [None] * len(self.names)
        rescued: Rescued = {}
        seen: set[bytes] = set()
        for kind, name, value, end in rb.elements(document):
            known = self._fields.get(name)
            if known is None and self._whole is not None:
                continue
            if known is None or name in seen:
                _rescue(rescued, _path_of(name), document, kind, value, end)
                continue
            seen.add(name)
            index, shape = known
            values[index] = _read(shape, document, kind, value, end, _path_of(name), rescued)
        if self._whole is not None:
            values[self._whole] = variant_text(document, rb.DOCUMENT, 0, len(document))
        return values, json.dumps(rescued) if rescued else None


def _path_of(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _read(shape: Shape, raw: bytes, kind: int, value: int, end: int, path: str, rescued: Rescued) -> Any:
    if kind == rb.NULL:
        return None
    if shape.kind == "struct" and kind == rb.DOCUMENT:
        return _read_struct(shape, raw, value, path, rescued)
    if shape.kind == "array" and kind == rb.ARRAY and shape.element is not None:
        inner = shape.element
        return [
            _read(inner, raw, element_kind, at, stop, f"{path}.{index}", rescued)
            for index, (element_kind, _, at, stop) in enumerate(rb.elements(raw, value))
        ]
    reader = _SCALARS.get((shape.kind, kind))
    if reader is not None:
        try:
            return reader(raw, value, end)
        except Misfit:
            pass
    elif shape.kind == "decimal" and kind in (rb.DECIMAL128, rb.INT32, rb.INT64):
        fitting = _decimal(raw, kind, value, shape.scale)
        if fitting is not None:
            return fitting
    elif shape.kind in ("variant", "json"):
        return variant_text(raw, kind, value, end)
    _rescue(rescued, path, raw, kind, value, end)
    return None


def _read_struct(shape: Shape, raw: bytes, start: int, path: str, rescued: Rescued) -> dict[str, Any]:
    values: dict[str, Any] = {}
    fields = shape.fields
    for kind, name, value, end in rb.elements(raw, start):
        key = _path_of(name)
        inner = fields.get(key)
        if inner is None or not inner.has_column or key in values:
            _rescue(rescued, f"{path}.{key}", raw, kind, value, end)
        else:
            values[key] = _read(inner, raw, kind, value, end, f"{path}.{key}", rescued)
    return values


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


def _decimal(raw: bytes, kind: int, value: int, scale: int) -> Decimal | None:
    """The number where DECIMAL(38,*scale*) holds it exactly; None for NaN, infinities, a negative zero and digits too many."""
    whole = _WHOLE.get(kind)
    number = Decimal128.from_bid(raw[value : value + 16]).to_decimal() if whole is None else Decimal(whole(raw, value)[0])
    if not number.is_finite() or (number == 0 and number.is_signed()):
        return None
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # finite
    whole_digits = number.adjusted() + 1
    return number if -exponent <= scale and whole_digits <= 38 - scale else None


_WHOLE = {rb.INT32: _int32, rb.INT64: _int64}

_SCALARS: dict[tuple[str, int], Callable[[bytes, int, int], Any]] = {
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
