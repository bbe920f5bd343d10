"""Reader of raw BSON that walks the bytes without decoding them.

A driver's decoder raises on values that MongoDB stores (invalid UTF-8, dates outside years 1 to 9999). It also loses
types (symbol, undefined, DBPointer) and the second of two equal names. A walk over the bytes does not, and it skips a
subtree without cost.

Source: bsonspec.org, version 1.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from decimal import Decimal

import bsonjs
from bson.decimal128 import Decimal128

DOUBLE, STRING, DOCUMENT, ARRAY, BINARY, UNDEFINED, OBJECT_ID, BOOLEAN = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08
DATE, NULL, REGEX, DB_POINTER, CODE, SYMBOL, CODE_WITH_SCOPE, INT32 = 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x10
TIMESTAMP, INT64, DECIMAL128, MAX_KEY, MIN_KEY = 0x11, 0x12, 0x13, 0x7F, 0xFF

TYPE_NAMES = {
    DOUBLE: "double",
    STRING: "string",
    DOCUMENT: "object",
    ARRAY: "array",
    BINARY: "binData",
    UNDEFINED: "undefined",
    OBJECT_ID: "objectId",
    BOOLEAN: "bool",
    DATE: "date",
    NULL: "null",
    REGEX: "regex",
    DB_POINTER: "dbPointer",
    CODE: "javascript",
    SYMBOL: "symbol",
    CODE_WITH_SCOPE: "javascriptWithScope",
    INT32: "int",
    TIMESTAMP: "timestamp",
    INT64: "long",
    DECIMAL128: "decimal",
    MAX_KEY: "maxKey",
    MIN_KEY: "minKey",
}
"""MongoDB's type names, as ``$type`` uses them."""

FIXED_SIZES = {
    DOUBLE: 8,
    UNDEFINED: 0,
    OBJECT_ID: 12,
    BOOLEAN: 1,
    DATE: 8,
    NULL: 0,
    INT32: 4,
    TIMESTAMP: 8,
    INT64: 8,
    DECIMAL128: 16,
    MAX_KEY: 0,
    MIN_KEY: 0,
}
"""Size of a value in bytes, by type. Values of other types hold their own length."""
_SIZES = [FIXED_SIZES.get(kind, -1) for kind in range(256)]
# Bytes that follow the leading int32 length and are not counted by it.
BEYOND_LENGTH = {STRING: 4, CODE: 4, SYMBOL: 4, DOCUMENT: 0, ARRAY: 0, CODE_WITH_SCOPE: 0, BINARY: 5, DB_POINTER: 16}

_int32 = struct.Struct("<i").unpack_from
_int64 = struct.Struct("<q").unpack_from
_length = struct.Struct("<i").pack
_uint32_pair = struct.Struct("<II").unpack_from
_uint64_pair = struct.Struct("<QQ").unpack_from

_NO_COEFFICIENT = 10**34
EMPTY = 5
"""Bytes of a document without fields."""

LEFT_OUT = b"_leftOut"
"""Field of an event that was stored without its large fields: the names of those fields."""


class MalformedBson(ValueError):
    """The bytes are not one BSON document. The message holds no document content."""


def int32_at(raw: bytes, at: int) -> int:
    return int(_int32(raw, at)[0])


def int64_at(raw: bytes, at: int) -> int:
    return int(_int64(raw, at)[0])


def timestamp_at(raw: bytes, at: int) -> tuple[int, int]:
    """Return seconds and increment of a BSON timestamp (the increment is stored first)."""
    increment, seconds = _uint32_pair(raw, at)
    return seconds, increment


def decimal_at(raw: bytes, at: int) -> Decimal:
    """Return the number of a Decimal128, with all of its digits.

    Source: IEEE 754-2008, binary integer decimal. The driver's own class takes ten times as long for the same.
    """
    low, high = _uint64_pair(raw, at)
    coefficient, exponent = (high & 0x1FFFFFFFFFFFF) << 64 | low, (high >> 49 & 0x3FFF) - 6176
    if high >> 61 & 3 == 3:  # NaN, Infinity, or a form whose digits are always too many
        return Decimal128.from_bid(raw[at : at + 16]).to_decimal()
    if coefficient >= _NO_COEFFICIENT:  # the standard reads it as zero; older drivers raise an error
        coefficient = 0
    return Decimal(f"{'-' if high >> 63 else ''}{coefficient}E{exponent}")


def elements(raw: bytes, start: int = 0) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield ``(type, name, value start, value end)`` of each field, in stored order, duplicates included.

    Args:
        raw: Bytes that hold the document.
        start: Offset of the document's length.

    Raises:
        MalformedBson: A length, a type byte or a terminator is wrong.
    """
    try:
        end = start + _int32(raw, start)[0] - 1
        at = start + 4
        if end >= len(raw) or end < at or raw[end]:
            raise MalformedBson("a document's length does not fit its bytes")
        sizes, index = _SIZES, raw.index
        while at < end:
            kind, value = raw[at], index(b"\0", at + 1) + 1
            size = sizes[kind]
            stop = value + size if size >= 0 else value_end(raw, kind, value)
            if stop > end:
                raise MalformedBson("a value reaches beyond its document")
            yield kind, raw[at + 1 : value - 1], value, stop
            at = stop
    except MalformedBson:
        raise
    except (struct.error, IndexError, ValueError) as error:
        raise _damage(error) from error


def _damage(error: Exception) -> MalformedBson:
    return MalformedBson("a name is not terminated" if isinstance(error, ValueError) else "truncated document")


def value_end(raw: bytes, kind: int, value: int) -> int:
    """Return the end offset of a value whose type has no fixed size.

    Raises:
        ValueError: The value has no end, or its type is unknown.
        struct.error: The length is missing.
    """
    if kind == REGEX:
        return raw.index(b"\0", raw.index(b"\0", value) + 1) + 1
    beyond = BEYOND_LENGTH.get(kind)
    if beyond is None:
        raise MalformedBson(f"unknown BSON type 0x{kind:02x}")
    size: int = _int32(raw, value)[0]
    if size < 0:
        raise MalformedBson("a negative length")
    return value + size + beyond


def field(raw: bytes, name: bytes, start: int = 0) -> tuple[int, int, int] | None:
    """Return ``(type, value start, value end)`` of the first field called *name*.

    None: no such field. Raises as `elements`.

    It does not use `elements`, which takes 50 % longer because it yields every field.
    """
    head, index, starts = name + b"\0", raw.index, raw.startswith
    try:
        end, at = start + _int32(raw, start)[0] - 1, start + 4
        if end >= len(raw) or end < at or raw[end]:
            raise MalformedBson("a document's length does not fit its bytes")
        while at < end:
            value = index(b"\0", at + 1) + 1
            kind = raw[at]
            size = _SIZES[kind]
            stop = value + size if size >= 0 else value_end(raw, kind, value)
            if stop > end:
                raise MalformedBson("a value reaches beyond its document")
            if starts(head, at + 1):
                return kind, value, stop
            at = stop
    except MalformedBson:
        raise
    except (struct.error, IndexError, ValueError) as error:
        raise _damage(error) from error
    return None


def array_documents(raw: bytes, start: int = 0) -> list[bytes]:
    """Return the elements of an array of documents.

    Raises:
        MalformedBson: An element is no document, or a length is wrong.
    """
    documents: list[bytes] = []
    add, index = documents.append, raw.index
    try:
        at, end = start + 4, start + _int32(raw, start)[0] - 1
        while at < end:
            value = index(b"\0", at) + 1
            size = _int32(raw, value)[0]
            if raw[at] != DOCUMENT or size < EMPTY:
                raise MalformedBson("an array element is no document")
            at = value + size
            add(raw[value:at])
    except (struct.error, IndexError, ValueError) as error:
        raise error if isinstance(error, MalformedBson) else _damage(error) from error
    if at != end or end >= len(raw) or raw[end]:
        raise MalformedBson("a document's length does not fit its bytes")
    return documents


def text(raw: bytes, value: int, end: int) -> str:
    """Return the text of a BSON string. Invalid UTF-8 becomes backslash escapes, because raising would lose the row."""
    return raw[value + 4 : end - 1].decode("utf-8", "backslashreplace")


def is_text(text: bytes) -> bool:
    """Return True if *text* is valid UTF-8."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_document(kind: int, payload: bytes, name: bytes = b"v") -> bytes:
    """Return the document ``{name: value}``."""
    return document_of((element(name, kind, payload),))


def element(name: bytes, kind: int, payload: bytes) -> bytes:
    """Return the bytes of one field: type, name, zero byte, value."""
    return bytes((kind,)) + name + b"\0" + payload


def document_of(elements: Iterable[bytes]) -> bytes:
    """Return a document (or an array) with the given fields, each as `element` returns it."""
    body = b"".join(elements)
    return _length(len(body) + 5) + body + b"\0"


def string_value(text: bytes) -> bytes:
    """Return the bytes of a BSON string value."""
    return _length(len(text) + 1) + text + b"\0"


def canonical_json(document: bytes) -> str:
    """Return a document as canonical Extended JSON (v2), written by libbson. Types become wrapper keys.

    The text is never converted back into BSON.

    Raises:
        ValueError: libbson refuses the document (invalid UTF-8, an invalid boolean, an unknown type).

    Source: libbson is about ten times as fast as bson.json_util and keeps symbol, undefined and DBPointer.
    """
    dumped: str = bsonjs.dumps(document, mode=bsonjs.CANONICAL)
    return dumped


def canonical_value(kind: int, payload: bytes) -> str:
    """Return one value as canonical Extended JSON. Raises as `canonical_json` does."""
    wrapped = canonical_json(as_document(kind, payload))
    return wrapped[wrapped.index(":") + 2 : -2]
