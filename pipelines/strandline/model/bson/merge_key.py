"""The MERGE key: two `_id`s have equal keys if and only if MongoDB treats them as equal.

`1`, `1.0`, `NumberLong(1)` and `Decimal128("1.00")` are one `_id` (a replace may change the stored type). `-0.0` is
`0`, and every NaN is NaN, also inside embedded documents. The order of fields counts. The text is readable: `"abc"`,
`17`, `{"$oid": "…"}`, `{"a": 1}`. A dollar at the start of a field name is doubled (`$$oid`), so that no document looks
like a type.

Measured on mongod 6.0 (unique index on `_id`): see tests/integration/test_merge_key_server.py.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from decimal import Decimal

from strandline.model.bson import raw as rb

_DECIMAL128_DIGITS = 34
_LONGEST_SHOWN = 300
_ID_NAME = b"_id\0"
_COMMON_ID_SIZES = {rb.OBJECT_ID: 12, rb.INT32: 4, rb.INT64: 8, rb.DOUBLE: 8, rb.STRING: 4, rb.BINARY: 5}
"""Bytes of an `_id`, by type. Texts and binary data: without their content."""
_WITH_LENGTH = (rb.STRING, rb.BINARY)
_EXACT_DOUBLES = 2**53
_json_text = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps makes a new encoder in each call
_double = struct.Struct("<d").unpack_from
_int64 = struct.Struct("<q").unpack_from
_int32 = struct.Struct("<i").unpack_from


def merge_key(raw: bytes, kind: int, value: int, end: int) -> str:
    """Return the normalised text of the value at *raw[value:end]*.

    Raises:
        MalformedBson: A nested document is damaged.
    """
    convert = _SCALARS.get(kind)
    if convert is not None:
        return convert(raw, value, end)
    if kind in (rb.DOCUMENT, rb.ARRAY):
        inner = (
            (name, merge_key(raw, inner_kind, inner_value, inner_end))
            for inner_kind, name, inner_value, inner_end in rb.elements(raw, value)
        )
        if kind == rb.ARRAY:
            return "[" + ", ".join(text for _, text in inner) + "]"
        return "{" + ", ".join(f"{_name(name)}: {text}" for name, text in inner) + "}"
    return f'{{"${rb.TYPE_NAMES[kind]}": "{raw[value:end].hex()}"}}'


def key_name(key: str, *, show: bool = False) -> str:
    """Return the name of a key for errors and logs.

    ``key #`` and 12 digits of its SHA-256. The key may be personal data.

    In SQL: ``sha2(key, 256)``.

    Args:
        show: Return the key itself, cut to 300 characters.
    """
    return (
        f"key {key[:_LONGEST_SHOWN]}"
        if show
        else f"key #{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()[:12]}"
    )


def document_merge_key(document: bytes) -> str:
    """Return the MERGE key of a document, from its `_id` (the server stores it first).

    Raises:
        MalformedBson: The document has no `_id`.
    """
    key = id_merge_key(document)
    if key is None:
        raise rb.MalformedBson("a document has no _id")
    return key


def id_merge_key(raw: bytes, start: int = 0) -> str | None:
    """Return the MERGE key of the `_id` of the document at *start*; None if it has none. Raises as `merge_key`.

    A first field `_id` of a common type is read without a walk: it takes half of the time.
    """
    if raw.startswith(_ID_NAME, start + 5):
        kind, value, end = raw[start + 4], start + 9, start + _int32(raw, start)[0] - 1
        size = _COMMON_ID_SIZES.get(kind)
        if size is not None and value + size <= end < len(raw) and not raw[end]:
            if kind == rb.OBJECT_ID:
                return _object_id(raw, value, value + size)
            stop = value + size + (_int32(raw, value)[0] if kind in _WITH_LENGTH else 0)
            if value + size <= stop <= end:
                return _SCALARS[kind](raw, value, stop)
    field = rb.field(raw, b"_id", start)
    return None if field is None else merge_key(raw, *field)


def _name(name: bytes) -> str:
    escaped = b"$" + name if name.startswith(b"$") else name
    try:
        return _json_text(escaped.decode())
    except UnicodeDecodeError:
        return f'"$invalid {name.hex()}"'  # a single dollar cannot occur in a valid name


def object_id_key(object_id: bytes) -> str:
    """Return the MERGE key of an ObjectId, from its twelve bytes."""
    return f'{{"$oid": "{object_id.hex()}"}}'


def _object_id(raw: bytes, value: int, end: int) -> str:
    return object_id_key(raw[value:end])


def _text(raw: bytes, value: int, end: int) -> str:
    try:
        return _json_text(raw[value + 4 : end - 1].decode())
    except UnicodeDecodeError:
        return f'{{"$string": "{raw[value + 4 : end - 1].hex()}"}}'


def _decimal(number: Decimal) -> str:
    """Return one text per number, whatever its exponent, trailing zeros or sign of zero."""
    if number.is_nan():
        return "NaN"
    if number.is_infinite():
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "0"
    sign, _, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # finite
    digits = _digits(number)
    significant = digits.rstrip("0")
    exponent += len(digits) - len(significant)
    prefix = "-" if sign else ""
    if 0 <= exponent <= 40:
        return prefix + significant + "0" * exponent
    if -40 <= exponent < 0:
        padded = significant.rjust(1 - exponent, "0")
        return f"{prefix}{padded[:exponent]}.{padded[exponent:]}"
    return f"{prefix}{significant}E{exponent}"


def _digits(number: Decimal) -> str:
    """Return the digits without leading zeros."""
    return "".join(map(str, number.as_tuple().digits)).lstrip("0")


def _from_double(raw: bytes, value: int, _end: int) -> str:
    number: float = _double(raw, value)[0]
    if number.is_integer() and abs(number) < _EXACT_DOUBLES:
        return str(int(number))
    exact = Decimal(number)
    if exact.is_finite() and len(_digits(exact).rstrip("0")) > _DECIMAL128_DIGITS:
        return f'{{"$double": "{number!r}"}}'  # no integer or Decimal128 equals it
    return _decimal(exact)


def _from_decimal(raw: bytes, value: int, _end: int) -> str:
    return _decimal(rb.decimal_at(raw, value))


_SCALARS: dict[int, Callable[[bytes, int, int], str]] = {
    rb.OBJECT_ID: _object_id,
    rb.STRING: _text,
    rb.SYMBOL: _text,  # the server compares a symbol as the string it is
    rb.INT32: lambda raw, value, _end: str(_int32(raw, value)[0]),
    rb.INT64: lambda raw, value, _end: str(_int64(raw, value)[0]),
    rb.DOUBLE: _from_double,
    rb.DECIMAL128: _from_decimal,
    rb.DATE: lambda raw, value, _end: f'{{"$date": {_int64(raw, value)[0]}}}',
    rb.BOOLEAN: lambda raw, value, _end: "true" if raw[value] else "false",
    rb.NULL: lambda _raw, _value, _end: "null",
    rb.BINARY: lambda raw, value, end: f'{{"$binary": "{raw[value + 4]:02x}:{raw[value + 5 : end].hex()}"}}',
    rb.TIMESTAMP: lambda raw, value, _end: '{{"$timestamp": "{}:{}"}}'.format(*rb.timestamp_at(raw, value)),
}
