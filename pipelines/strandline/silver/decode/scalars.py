"""Readers of single BSON values: the BSON types that a column accepts, and the conversion of each. Pure."""

from __future__ import annotations

import json
import struct
import uuid
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from strandline.model.bson import raw as rb
from strandline.model.bson.decimal_digits import fitted
from strandline.model.bson.poison import LARGEST_JSON, name_problem_in
from strandline.model.shape import Shape
from strandline.silver.schema.census import binary_kind

Scalar = Callable[[bytes, int, int], Any]
"""Reads the value at ``raw[start:end]``. Raises `Misfit` if the value does not fit the column."""

_int32 = struct.Struct("<i").unpack_from
_int64 = struct.Struct("<q").unpack_from
_double = struct.Struct("<d").unpack_from

_LARGEST_BYTES = 14_000_000  # as base64, still below the longest text that Jackson reads

# Range of a TIMESTAMP, in milliseconds: from year 1 to year 9999.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999


class Misfit(Exception):
    """The value does not fit its column. The caller rescues the value."""


def variant_text(raw: bytes, kind: int, value: int, end: int) -> str:
    """Return the value as JSON that Spark's `parse_json` accepts: canonical Extended JSON, where possible.

    `parse_json` refuses duplicate names in one document, names above 50,000 bytes, invalid UTF-8, and JSON above 16
    MiB. Such a value becomes ``{"$bson": base64}``, the bytes of ``{v: value}``. A value too large even for that
    becomes ``{"$bytes": size}``; the column ``_document`` holds its bytes.
    """
    payload = raw[value:end]
    try:
        if name_problem_in(raw, kind, value) is None:
            text = rb.canonical_value(kind, payload)
            if len(text) <= LARGEST_JSON:
                return text
    except ValueError:  # libbson cannot convert the value: keep its bytes
        pass
    if len(payload) > _LARGEST_BYTES:
        return json.dumps({"$bytes": len(payload)})
    return json.dumps({"$bson": b64encode(rb.as_document(kind, payload)).decode("ascii")})


def string(raw: bytes, value: int, end: int) -> str:
    try:
        return raw[value + 4 : end - 1].decode()
    except UnicodeDecodeError:
        raise Misfit from None


def _exact_double(raw: bytes, value: int, _end: int) -> float:
    whole: int = _int64(raw, value)[0]
    if int(float(whole)) != whole:
        raise Misfit
    return float(whole)


def _date(raw: bytes, value: int, _end: int) -> int:
    milliseconds: int = _int64(raw, value)[0]
    if not FIRST_MS <= milliseconds <= LAST_MS:
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


def scalars_of(shape: Shape) -> dict[int, Scalar]:
    """Return a reader for each BSON type that a column of *shape* accepts.

    A type that is missing is nested, or does not fit.
    """
    readers: dict[int, Scalar] = {kind: reader for (name, kind), reader in _SCALARS.items() if name == shape.kind}
    if shape.kind in ("variant", "json"):
        readers = {kind: _variant(kind) for kind in rb.TYPE_NAMES}
    if shape.kind == "decimal":
        readers = {kind: _decimal(kind, shape.scale) for kind in (rb.DECIMAL128, rb.INT32, rb.INT64)}
    return readers | {rb.NULL: _null}


def _variant(kind: int) -> Scalar:
    return lambda raw, value, end: variant_text(raw, kind, value, end)


def _decimal(kind: int, scale: int) -> Scalar:
    """Return a reader for DECIMAL(38, *scale*).

    NaN, infinities, negative zero and numbers with too many digits do not fit.
    """
    whole = _WHOLE.get(kind)

    def read(raw: bytes, value: int, _end: int) -> Decimal:
        number = fitted(rb.decimal_at(raw, value) if whole is None else Decimal(whole(raw, value)[0]), scale)
        if number is None:
            raise Misfit
        return number

    return read


_WHOLE = {rb.INT32: _int32, rb.INT64: _int64}

_SCALARS: dict[tuple[str, int], Scalar] = {
    ("int", rb.INT32): lambda raw, value, _end: _int32(raw, value)[0],
    ("long", rb.INT32): lambda raw, value, _end: _int32(raw, value)[0],
    ("long", rb.INT64): lambda raw, value, _end: _int64(raw, value)[0],
    ("double", rb.DOUBLE): lambda raw, value, _end: _double(raw, value)[0],
    ("double", rb.INT64): _exact_double,
    ("double", rb.INT32): lambda raw, value, _end: float(_int32(raw, value)[0]),
    ("string", rb.STRING): string,
    ("objectId", rb.OBJECT_ID): lambda raw, value, end: raw[value:end].hex(),
    ("bool", rb.BOOLEAN): lambda raw, value, _end: raw[value] == 1,
    ("date", rb.DATE): _date,
    ("binary", rb.BINARY): _bytes,
    ("uuid", rb.BINARY): _uuid,
}
