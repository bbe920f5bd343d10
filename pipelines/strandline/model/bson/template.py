"""Templates: one regular expression that reads all documents with the same fields, types and field order. Pure.

Most documents of a collection are alike in this way. A walk in Python takes about 1 µs per value. A regular expression
made from one document finds all values of the next one in a tenth of that time, because it runs in C.

A match returns the values that a walk would return, or None. A text ends at the first zero byte for the expression, so
a text with a zero byte could be mistaken for more fields. So the stored length of each text, document and array is
checked against the match. Documents that differ, or that hold invalid UTF-8, are left to the walk.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final

from strandline.model.bson import raw as rb

Path = tuple[bytes, ...]
Values = Sequence[Any]
"""Values of a document, as bytes.

A text has no length prefix but ends with its zero byte. An array with a template is a list of the `Values` of its
elements. Lengths are among the values.
"""
Into = Callable[[int, Path], bool]
"""Return True if the document or array (type, path) is to be split into its values, False to return it whole."""

ELEMENT: Final = b"\0"
"""Path component for any element of an array. No field name contains this byte."""

_MOST_VALUES, _LONGEST_EXPRESSION = 500, 20_000

_NO_ELEMENT = b"\5\0\0\0\0"
_int32 = struct.Struct("<i").unpack_from


@dataclass(frozen=True)
class Leaf:
    """Value that is returned as bytes."""

    kind: int
    place: int
    """Index among the values of the document or the array element."""


@dataclass(frozen=True)
class Fields:
    """Document at any level."""

    fields: tuple[tuple[bytes, Node], ...]


@dataclass(frozen=True)
class Items:
    """Array whose elements are alike.

    *item* is the node of one element, with indexes in its values. None: an empty array.
    """

    place: int
    item: Node | None


Node = Leaf | Fields | Items


class BsonTemplate:
    """Template of one document: names, types and order of its fields, at all levels.

    Raises:
        ValueError: The document has too many values or too long names, or it is damaged.
    """

    def __init__(self, document: bytes, into: Into) -> None:
        parts = _Parts(into)
        self.root = parts.document(document, 0, ())
        parts.end(None)
        self._steps, self._documents = parts.steps, parts.documents
        self._texts, self._lengths = _getter(parts.texts), _getter([place - 1 for place in parts.texts])
        self._pack = _packer(len(parts.texts))

    def values(self, document: bytes) -> Values | None:
        """Return the values of a document that matches the template. None: it does not match."""
        found: list[Any] = []
        skipped: list[int] = []
        at = 0
        for match, read in self._steps:
            matched = match(document, at)
            if matched is None:
                return None
            found += matched.groups()
            at = matched.end()
            if read is not None:
                value, stop = read(document, at)
                if value is None:
                    return None
                found.append(value)
                skipped.append(stop - at)
                at = stop
        texts = self._texts(found)
        sizes = list(map(len, texts))
        if self._pack(*sizes) != b"".join(self._lengths(found)) or not is_text(b"".join(texts)):
            return None
        for one in self._documents:
            if _int32(found[one.place])[0] != one.own_bytes + sum(sizes[one.texts]) + sum(skipped[one.skipped]):
                return None
        return found


_Skipped = Callable[[bytes, int], "tuple[Any, int]"]
"""Function that reads one value: returns it (None: unexpected) and its end offset."""


@dataclass(frozen=True)
class _Document:
    """Parts of a document's length, for the check of a match."""

    place: int
    """Index of the length among the values."""
    texts: slice
    skipped: slice
    """Texts and unmatched values inside the document, as slices of all of them."""
    own_bytes: int
    """Remaining bytes of the document."""


class _Parts:
    """Builder of a template: of a document, or of an array element, whose first value is its name (*named*)."""

    def __init__(self, into: Into, *, named: bool = False) -> None:
        self._into, self._text = into, list[bytes]()
        self.count = 1 if named else 0
        """Number of values so far."""
        self.steps: list[tuple[Callable[[bytes, int], re.Match[bytes] | None], _Skipped | None]] = []
        """Regular expressions, each with the reader of the value after it, which no expression can match."""
        self.texts: list[int] = []
        """Indexes of the texts. The value before each is its length."""
        self.text_sizes: list[int] = []
        self.skipped_sizes: list[int] = []
        self.documents: list[_Document] = []

    def document(self, raw: bytes, start: int, path: Path) -> Fields:
        place, texts, skipped = self._value(rb"(.{4})"), len(self.text_sizes), len(self.skipped_sizes)
        fields = []
        for kind, name, value, stop in rb.elements(raw, start):
            self._text.append(re.escape(rb.element(name, kind, b"")))
            fields.append((name, self.value(raw, kind, value, stop, (*path, name))))
        self._text.append(rb"\0")
        own_bytes = rb.int32_at(raw, start) - sum(self.text_sizes[texts:]) - sum(self.skipped_sizes[skipped:])
        inside = slice(texts, len(self.text_sizes)), slice(skipped, len(self.skipped_sizes))
        self.documents.append(_Document(place, *inside, own_bytes))
        return Fields(tuple(fields))

    def value(self, raw: bytes, kind: int, value: int, stop: int, path: Path) -> Node:
        if kind == rb.STRING:
            self._value(rb"(.{4})")
            self.texts.append(self._value(rb"([^\0]*+\0)"))
            self.text_sizes.append(stop - value - 4)
            return Leaf(kind, self.texts[-1])
        if kind == rb.DOCUMENT and self._into(kind, path):
            return self.document(raw, value, path)
        if kind in rb.FIXED_SIZES:
            return Leaf(kind, self._value(rb"(.{%d})" % (stop - value)))
        array = (
            _Array.of(raw, value, self._into, (*path, ELEMENT)) if kind == rb.ARRAY and self._into(kind, path) else None
        )
        self.end(_whole(kind) if array is None else array.read)
        self.skipped_sizes.append(stop - value)
        self.count += 1
        return Leaf(kind, self.count - 1) if array is None else Items(self.count - 1, array.item)

    def end(self, skipped: _Skipped | None) -> None:
        self.steps.append((self.expression().match, skipped))
        self._text.clear()

    def expression(self, head: bytes = b"") -> re.Pattern[bytes]:
        """Compile the expression collected so far, after *head*."""
        text = head + b"".join(self._text)
        if self.count > _MOST_VALUES or len(text) > _LONGEST_EXPRESSION:
            raise ValueError("too much for an expression")
        return re.compile(text, re.DOTALL)

    def _value(self, expression: bytes) -> int:
        self._text.append(expression)
        self.count += 1
        return self.count - 1


class _Array:
    """Reader of an array whose elements are all like the first one, or of an empty array.

    Args:
        own_bytes: Bytes of an element without its name and its texts.
    """

    def __init__(self, parts: _Parts, kind: int = 0, item: Node | None = None, own_bytes: int = 0) -> None:
        self.item, self._texts, self._documents, self._own_bytes = item, parts.texts, parts.documents, own_bytes
        self._told = [*(place - 1 for place in parts.texts), *(one.place for one in parts.documents)]
        self._find = None if item is None else parts.expression(re.escape(bytes((kind,))) + rb"([0-9]++)\0").findall

    @staticmethod
    def of(raw: bytes, start: int, into: Into, path: Path) -> _Array | None:
        """Return a reader for the array at *start*. None: its elements differ, or an expression cannot match them."""
        for kind, _, value, stop in rb.elements(raw, start):
            parts = _Parts(into, named=True)
            item = parts.value(raw, kind, value, stop, path)
            array = None if parts.steps else _Array(parts, kind, item, stop - value + 2 - sum(parts.text_sizes))
            return None if array is None or array.read(raw, start)[0] is None else array
        return _Array(_Parts(into))

    def read(self, raw: bytes, at: int) -> tuple[list[Values] | None, int]:
        """Return the values of each element (its name first) and the end offset.

        The values are None if elements differ.
        """
        if raw.startswith(_NO_ELEMENT, at):
            return [], at + len(_NO_ELEMENT)
        size = int.from_bytes(raw[at : at + 4], "little")
        rows = self._find(raw, at + 4, at + size - 1) if self._find is not None and at + size <= len(raw) else []
        if not rows:
            return None, at
        columns = list(zip(*rows, strict=True))
        varying = [b"".join(columns[place]) for place in (0, *self._texts)]
        if size != 5 + self._own_bytes * len(rows) + sum(map(len, varying)):
            return None, at  # something stands between them
        sizes = [tuple(map(len, columns[place])) for place in self._texts]
        lengths = list(sizes)
        for one in self._documents:
            inside = map(sum, zip(*sizes[one.texts], strict=True)) if sizes[one.texts] else repeat(0, len(rows))
            lengths.append(tuple(one.own_bytes + each for each in inside))
        told = b"".join([b"".join(columns[place]) for place in self._told])
        agree = told == _packer(len(lengths) * len(rows))(*chain.from_iterable(lengths)) and all(map(is_text, varying))
        return (rows, at + size) if agree else (None, at)


def _whole(kind: int) -> _Skipped:
    def read(raw: bytes, at: int) -> tuple[bytes | None, int]:
        try:
            stop = rb.value_end(raw, kind, at)
        except (ValueError, struct.error):
            return None, at
        return raw[at:stop], stop

    return read


def is_text(text: bytes) -> bool:
    """Return True if *text* is valid UTF-8."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _getter(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    return (lambda values: (values[places[0]],)) if places else lambda _: ()


@lru_cache(maxsize=1_000)
def _packer(count: int) -> Callable[..., bytes]:
    return struct.Struct(f"<{count}i").pack
