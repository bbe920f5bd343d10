"""Extended JSON in Debezium's four modes. Pure. Strict mode (v1) is written here, because libbson lacks it.

Source: docs.mongodb.com, MongoDB Extended JSON v1, strict mode. Spaces and commas are as in MongoDB's Java driver, so
that keys can be compared as text.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Final, Literal, NamedTuple

import bsonjs
from bson.decimal128 import Decimal128

from strandline.model.bson import raw as rb

JsonMode = Literal["legacy", "strict", "extended", "relaxed"]
"""Debezium's ``json.serialization.mode``."""

_double_at = struct.Struct("<d").unpack_from
_OLD_BINARY = 2


class JsonWriters(NamedTuple):
    """Functions that write whole documents, and the changed fields of an update.

    Both raise ValueError on invalid UTF-8.
    """

    document: Callable[[bytes], str]
    updated_fields: Callable[[bytes], str]


def strict_json(document: bytes) -> str:
    """Return a document as strict Extended JSON (v1).

    Raises:
        ValueError: Text is not UTF-8, or the bytes are not BSON.
    """
    return _document(document, 0, len(document))


def strict_value(kind: int, raw: bytes, value: int, end: int) -> str:
    """Return the value at *raw[value:end]* as strict Extended JSON (v1). Raises as `strict_json` does."""
    return _STRICT[kind](raw, value, end)


def relaxed_json(document: bytes) -> str:
    """Return a document as relaxed Extended JSON (v2). Raises as `strict_json` does."""
    dumped: str = bsonjs.dumps(document, mode=bsonjs.RELAXED)
    return dumped


WRITERS: Final[dict[JsonMode, JsonWriters]] = {
    "legacy": JsonWriters(strict_json, relaxed_json),
    "strict": JsonWriters(strict_json, strict_json),
    "extended": JsonWriters(rb.canonical_json, rb.canonical_json),
    "relaxed": JsonWriters(relaxed_json, relaxed_json),
}


def _object(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{_quoted(name)}: {text}" for name, text in members) + "}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _document(raw: bytes, value: int, _end: int) -> str:
    """Use only one Python stack frame per level: MongoDB stores documents of 180 levels."""
    members = []
    for kind, name, at, stop in rb.elements(raw, value):
        members.append(f"{_quoted(name.decode())}: {_STRICT[kind](raw, at, stop)}")
    return "{" + ",".join(members) + "}"


def _array(raw: bytes, value: int, _end: int) -> str:
    values = []
    for kind, _, at, stop in rb.elements(raw, value):
        values.append(_STRICT[kind](raw, at, stop))
    return "[" + ", ".join(values) + "]"


def _string(raw: bytes, value: int, end: int) -> str:
    return _quoted(raw[value + 4 : end - 1].decode())


def _double(raw: bytes, value: int, _end: int) -> str:
    """Return the shortest digits; with an exponent outside 0.001 to 10,000,000, as Java does."""
    (number,) = _double_at(raw, value)
    if number != number or number in (float("inf"), float("-inf")):  # no JSON number; v1 has no form for it, v2 has
        text = "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
        return _object([("$numberDouble", _quoted(text))])
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    digits, exponent = f"{Decimal(repr(number)).normalize():E}".split("E")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _binary(raw: bytes, value: int, end: int) -> str:
    subtype = raw[value + 4]
    content = raw[value + (9 if subtype == _OLD_BINARY else 5) : end]  # the old subtype repeats its length
    return _object([("$binary", _quoted(b64encode(content).decode())), ("$type", f'"{subtype:02X}"')])


def _object_id(raw: bytes, value: int, end: int) -> str:
    return _object([("$oid", f'"{raw[value:end].hex()}"')])


def _regex(raw: bytes, value: int, end: int) -> str:
    pattern, options = raw[value : end - 1].split(b"\0")
    return _object([("$regex", _quoted(pattern.decode())), ("$options", _quoted(options.decode()))])


def _pointer(raw: bytes, value: int, end: int) -> str:
    return _object([("$ref", _string(raw, value, end - 12)), ("$id", _object_id(raw, end - 12, end))])


def _code_with_scope(raw: bytes, value: int, end: int) -> str:
    scope = value + 8 + rb.int32_at(raw, value + 4)
    return _object([("$code", _string(raw, value + 4, scope)), ("$scope", _document(raw, scope, end))])


def _timestamp(raw: bytes, value: int, _end: int) -> str:
    seconds, increment = rb.timestamp_at(raw, value)
    return _object([("$timestamp", _object([("t", str(seconds)), ("i", str(increment))]))])


_STRICT: Final[dict[int, Callable[[bytes, int, int], str]]] = {
    rb.DOUBLE: _double,
    rb.STRING: _string,
    rb.DOCUMENT: _document,
    rb.ARRAY: _array,
    rb.BINARY: _binary,
    rb.UNDEFINED: lambda _raw, _value, _end: _object([("$undefined", "true")]),
    rb.OBJECT_ID: _object_id,
    rb.BOOLEAN: lambda raw, value, _end: "true" if raw[value] else "false",
    rb.DATE: lambda raw, value, _end: _object([("$date", str(rb.int64_at(raw, value)))]),
    rb.NULL: lambda _raw, _value, _end: "null",
    rb.REGEX: _regex,
    rb.DB_POINTER: _pointer,
    rb.CODE: lambda raw, value, end: _object([("$code", _string(raw, value, end))]),
    rb.SYMBOL: lambda raw, value, end: _object([("$symbol", _string(raw, value, end))]),
    rb.CODE_WITH_SCOPE: _code_with_scope,
    rb.INT32: lambda raw, value, _end: str(rb.int32_at(raw, value)),
    rb.TIMESTAMP: _timestamp,
    rb.INT64: lambda raw, value, _end: _object([("$numberLong", f'"{rb.int64_at(raw, value)}"')]),
    rb.DECIMAL128: lambda raw, value, end: _object([("$numberDecimal", f'"{Decimal128.from_bid(raw[value:end])}"')]),
    rb.MAX_KEY: lambda _raw, _value, _end: _object([("$maxKey", "1")]),
    rb.MIN_KEY: lambda _raw, _value, _end: _object([("$minKey", "1")]),
}
