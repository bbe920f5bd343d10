"""Documents that are written alike, read by one regular expression. Pure.

Most documents of a collection have the same fields of the same types in the same order. A walk in Python takes a microsecond for each
value; an expression made of one such document finds all values of the next one in a tenth of that, because it is C that looks.

A match says what a walk would say, or nothing. An expression ends a text at its first zero byte, so a text that holds one, and behind it
whatever looks like more fields, could be taken for something else: the length that stands before each text, document and array is held
against what was found. What does not agree in every byte is left to the walk, and what holds a text that is not UTF-8.
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

from pipelines.model.bson import raw as rb

Path = tuple[bytes, ...]
Values = Sequence[Any]
"""Of a document: the bytes of each value, of a text without its length but with its zero byte; of an array that has a layout, the `Values`
of each element. Lengths stand among them."""
Into = Callable[[int, Path], bool]
"""Whether a document or an array (type, path) is to be looked into; else it is handed over whole."""

ELEMENT: Final = b"\0"
"""Any element of an array, in a path. No name has this byte."""

_MOST_VALUES, _LONGEST_EXPRESSION = 500, 20_000

_NO_ELEMENT = b"\5\0\0\0\0"
_int32 = struct.Struct("<i").unpack_from


@dataclass(frozen=True)
class Leaf:
    """A value that is handed over as bytes."""

    kind: int
    place: int
    """Among the values of the document, or of the element."""


@dataclass(frozen=True)
class Fields:
    """A document, at any level."""

    fields: tuple[tuple[bytes, Node], ...]


@dataclass(frozen=True)
class Items:
    """An array whose elements are alike. *item* has its places among the values of one element; None: there is no element."""

    place: int
    item: Node | None


Node = Leaf | Fields | Items


class BsonTemplate:
    """How one document is written: the names, types and order of its fields, and of those inside.

    Raises:
        ValueError: It has too many values or too long names; or it is damaged.
    """

    def __init__(self, document: bytes, into: Into) -> None:
        parts = _Parts(into)
        self.root = parts.document(document, 0, ())
        parts.end(None)
        self._steps, self._documents = parts.steps, parts.documents
        self._texts, self._lengths = _getter(parts.texts), _getter([place - 1 for place in parts.texts])
        self._pack = _packer(len(parts.texts))

    def values(self, document: bytes) -> Values | None:
        """Of a document that is written so; None: it is not."""
        found: list[Any] = []
        beyond: list[int] = []
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
                beyond.append(stop - at)
                at = stop
        texts = self._texts(found)
        sizes = list(map(len, texts))
        if self._pack(*sizes) != b"".join(self._lengths(found)) or not is_text(b"".join(texts)):
            return None
        for one in self._documents:
            if _int32(found[one.place])[0] != one.beside + sum(sizes[one.texts]) + sum(beyond[one.beyond]):
                return None
        return found


_Beyond = Callable[[bytes, int], "tuple[Any, int]"]
"""Reads the value that stands there: what it is, None where it is not as expected, and where it ends."""


@dataclass(frozen=True)
class _Document:
    """What the length of a document must be."""

    place: int
    """Of that length."""
    texts: slice
    beyond: slice
    """Which of all texts, and of all values that no expression can look into, are in it."""
    beside: int
    """Bytes beside them."""


class _Parts:
    """Puts a layout together: of one document, or of one element of an array, whose first value is its name (*named*)."""

    def __init__(self, into: Into, *, named: bool = False) -> None:
        self._into, self._text = into, list[bytes]()
        self.count = 1 if named else 0
        """Of values so far."""
        self.steps: list[tuple[Callable[[bytes, int], re.Match[bytes] | None], _Beyond | None]] = []
        """Expressions, and what reads the value behind each that none can look into."""
        self.texts: list[int] = []
        """Places of texts; the length of each is the value before."""
        self.text_sizes: list[int] = []
        self.beyond_sizes: list[int] = []
        self.documents: list[_Document] = []

    def document(self, raw: bytes, start: int, path: Path) -> Fields:
        place, texts, beyond = self._value(rb"(.{4})"), len(self.text_sizes), len(self.beyond_sizes)
        fields = []
        for kind, name, value, stop in rb.elements(raw, start):
            self._text.append(re.escape(rb.element(name, kind, b"")))
            fields.append((name, self.value(raw, kind, value, stop, (*path, name))))
        self._text.append(rb"\0")
        beside = rb.int32_at(raw, start) - sum(self.text_sizes[texts:]) - sum(self.beyond_sizes[beyond:])
        inside = slice(texts, len(self.text_sizes)), slice(beyond, len(self.beyond_sizes))
        self.documents.append(_Document(place, *inside, beside))
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
        self.beyond_sizes.append(stop - value)
        self.count += 1
        return Leaf(kind, self.count - 1) if array is None else Items(self.count - 1, array.item)

    def end(self, beyond: _Beyond | None) -> None:
        self.steps.append((self.expression().match, beyond))
        self._text.clear()

    def expression(self, head: bytes = b"") -> re.Pattern[bytes]:
        """Of all up to here, behind *head*."""
        text = head + b"".join(self._text)
        if self.count > _MOST_VALUES or len(text) > _LONGEST_EXPRESSION:
            raise ValueError("too much for an expression")
        return re.compile(text, re.DOTALL)

    def _value(self, expression: bytes) -> int:
        self._text.append(expression)
        self.count += 1
        return self.count - 1


class _Array:
    """The elements of an array, each as the first one is; or no element.

    Args:
        beside: Bytes of an element beside its name and its texts.
    """

    def __init__(self, parts: _Parts, kind: int = 0, item: Node | None = None, beside: int = 0) -> None:
        self.item, self._texts, self._documents, self._beside = item, parts.texts, parts.documents, beside
        self._told = [*(place - 1 for place in parts.texts), *(one.place for one in parts.documents)]
        self._find = None if item is None else parts.expression(re.escape(bytes((kind,))) + rb"([0-9]++)\0").findall

    @staticmethod
    def of(raw: bytes, start: int, into: Into, path: Path) -> _Array | None:
        """None: its elements differ, or no expression can look into them."""
        for kind, _, value, stop in rb.elements(raw, start):
            parts = _Parts(into, named=True)
            item = parts.value(raw, kind, value, stop, path)
            array = None if parts.steps else _Array(parts, kind, item, stop - value + 2 - sum(parts.text_sizes))
            return None if array is None or array.read(raw, start)[0] is None else array
        return _Array(_Parts(into))

    def read(self, raw: bytes, at: int) -> tuple[list[Values] | None, int]:
        """The values of each element, its name the first; None where not all of them are alike."""
        if raw.startswith(_NO_ELEMENT, at):
            return [], at + len(_NO_ELEMENT)
        size = int.from_bytes(raw[at : at + 4], "little")
        rows = self._find(raw, at + 4, at + size - 1) if self._find is not None and at + size <= len(raw) else []
        if not rows:
            return None, at
        columns = list(zip(*rows, strict=True))
        varying = [b"".join(columns[place]) for place in (0, *self._texts)]
        if size != 5 + self._beside * len(rows) + sum(map(len, varying)):
            return None, at  # something stands between them
        sizes = [tuple(map(len, columns[place])) for place in self._texts]
        lengths = list(sizes)
        for one in self._documents:
            inside = map(sum, zip(*sizes[one.texts], strict=True)) if sizes[one.texts] else repeat(0, len(rows))
            lengths.append(tuple(one.beside + each for each in inside))
        told = b"".join([b"".join(columns[place]) for place in self._told])
        agree = told == _packer(len(lengths) * len(rows))(*chain.from_iterable(lengths)) and all(map(is_text, varying))
        return (rows, at + size) if agree else (None, at)


def _whole(kind: int) -> _Beyond:
    def read(raw: bytes, at: int) -> tuple[bytes | None, int]:
        try:
            stop = rb.value_end(raw, kind, at)
        except (ValueError, struct.error):
            return None, at
        return raw[at:stop], stop

    return read


def is_text(text: bytes) -> bool:
    """Whether it is UTF-8."""
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
