"""Which documents a resume token names: it contains the `_id` of its event, encoded as in an index of MongoDB. Pure.

Source: ``key_string.cpp`` of MongoDB; compared with tokens of a server, with an `_id` of each type.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

_NAME: Final = "5F696400"
"""``_id`` as a field's name, in hex. The value follows."""
_TEXT: Final = "3C"
_DIGITS: Final = re.compile("[0-9A-F]{44,}")
_ONE_BYTE: Final = {True: 0x2B, False: 0x27}
"""Type of an integer that needs one byte. Each byte more is a type more: up for positive numbers, else down."""
_FIRST_LARGE: Final = 2**63
_LARGE, _SMALL = {True: "33", False: "1F"}, {True: "2A", False: "28"}
"""Types of numbers from 2^63 on, and between 0 and 1, positive and negative. Their values are not compared."""
_FIRST_LONG: Final = 255
"""Bytes of binary data from which on its length takes more than one byte."""


class IdsInTokens:
    """Finds the tokens that contain the `_id` of one of some documents.

    Texts, ObjectIds, binary data, dates, booleans, null, and numbers up to 2^63 are compared by value, fractions by
    their integer part. Of other types every token with an `_id` of that type is found.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        """Take the MERGE *keys* of the documents."""
        self._by_length = defaultdict[int, set[str]](set)
        for key in keys:
            encoded = _encoded(key)
            self._by_length[len(encoded)].add(encoded)

    def __contains__(self, token: str | None) -> bool:
        """Return True if a token contains one of the `_id`s.

        Args:
            token: Its ``_data``.
        """
        at = -1 if token is None else token.find(_NAME)
        while token is not None and at >= 0:
            value = token[at + len(_NAME) :]
            if any(value[:n] in encoded and not _goes_on(value, n) for n, encoded in self._by_length.items()):
                return True
            at = token.find(_NAME, at + 1)
        return False

    def removed_from(self, text: str) -> str:
        """Return *text* without such tokens: a position is then that of the time alone."""
        return _DIGITS.sub(lambda match: "" if match[0] in self else match[0], text)


def _goes_on(value: str, end: int) -> bool:
    """Return True if a text does not end at *end*: the next character is NUL."""
    return value.startswith(_TEXT) and value.startswith("FF", end)


def _encoded(key: str) -> str:
    """Return the beginning of the encoded value, in hex. Empty: every value begins so."""
    value = json.loads(key, parse_float=Decimal, parse_constant=Decimal)
    if value is None:
        return "14"
    if isinstance(value, bool):
        return "6F" if value else "6E"
    if isinstance(value, str):
        return _text(value.encode())
    if isinstance(value, int | Decimal):
        return _number(Decimal(value))
    return _document(value)


def _text(content: bytes) -> str:
    return _TEXT + content.replace(b"\0", b"\0\xff").hex().upper() + "00"


def _number(number: Decimal) -> str:
    if number.is_nan():
        return "1E"
    if number == 0:
        return "29"
    is_positive, magnitude = number > 0, abs(number)
    if magnitude >= _FIRST_LARGE:
        return _LARGE[is_positive]
    if magnitude < 1:
        return _SMALL[is_positive]
    whole = int(magnitude)
    shifted = whole << 1 | (magnitude != whole)
    size = (shifted.bit_length() + 7) // 8
    content = shifted if is_positive else (1 << 8 * size) - 1 - shifted
    return f"{_ONE_BYTE[is_positive] + (size - 1 if is_positive else 1 - size):02X}{content:0{2 * size}X}"


def _document(value: Mapping[str, Any]) -> str:
    """Return the beginning of a type that the key names, such as ``$oid``, or of a document: it doubles the dollar."""
    name: str = next(iter(value), "")
    content: Any = value.get(name)
    if name.startswith("$$") or not name.startswith("$"):
        return "46"
    if name == "$oid":
        return f"64{content}".upper()
    if name == "$string":
        return _text(bytes.fromhex(content))
    if name == "$double":
        return _number(Decimal(float(content)))
    if name == "$date":
        return f"78{content + _FIRST_LARGE:016X}"
    if name == "$binary":
        kind, _, data = content.partition(":")
        size = len(data) // 2
        return f"5A{size:02X}{kind}{data}".upper() if size < _FIRST_LONG else "5AFF"
    return ""
