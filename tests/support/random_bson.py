"""Random batches of BSON documents: alike, unlike and damaged ones. Written byte by byte, as no driver writes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random

from bson.decimal128 import Decimal128

from strandline.model.bson import raw as rb

Value = tuple[int, bytes]
"""BSON type, and the bytes of the value."""
Make = Callable[[], Value]
Layout = list[tuple[bytes, Make]]
"""Fields of documents that are alike: names, and makers of their values."""

_NAMES = (
    b"_id",
    b"a",
    b"b",
    b"A",
    "ä".encode(),
    b"a.b",
    b"$c",
    b"",
    b"7 bytes",
    b"eightbyt",
    b"longer than eight bytes",
)
_ODD_NAMES = (b"\xff", b"n" * 254, b"n" * 255, b"n" * 256, b"_op", b"n" * 300)
_TEXTS = ("", "x", "é🛫", "a\0b", "\0", "x\0\2b\0\2\0\0\0y", "longer than twelve bytes", "2026-01-01")
_NOT_UTF_8 = (b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"x\xe2\x82")
_WHOLE = (0, 1, -1, 7, 2**31 - 1, -(2**31))
_LONG = (2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
_DATES = (-62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999, 253_402_300_800_000, 0, 1_767_225_600_123)
_DOUBLES = (0.0, -0.0, 1.5, float("nan"), float("inf"), 5e-324, 1e308)
_DECIMALS = (
    *("0", "-0", "0.00", "0E+10", "0E-40", "0.05", "1.25", "-7.7700", "100", "1E+3", "1E+35", "1E-6176"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 34, "9" * 34 + "E-34"),
    *("NaN", "-NaN", "Infinity", "-Infinity"),
)


def random_batch(chance: Random) -> list[bytes]:
    """Return a batch of documents, of which all, most or few are alike and undamaged."""
    oddness = chance.choice((0.0, 0.01, 0.2))
    writer = _Writer(chance, oddness)
    layouts = [writer.layout(depth=3) for _ in range(chance.choice((1, 1, 2, 4)))]
    documents = [writer.document(chance.choice(layouts)) for _ in range(chance.choice((3, 45, 80)))]
    if chance.random() < 0.3:
        at = chance.randrange(len(documents))
        documents[at] = damaged(documents[at], chance)
    return documents


def damaged(document: bytes, chance: Random) -> bytes:
    """Return a document with another byte or length, or with bytes cut off or added."""
    at, byte = chance.randrange(len(document)), bytes((chance.choice((0, 1, 2, 3, 4, 5, 11, 16, 65, 200, 255)),))
    return chance.choice(
        (
            document[:at] + byte + document[at + 1 :],
            document[:at] + byte + document[at + 1 :],
            document[:at],
            document + b"more",
            struct.pack("<i", chance.randint(-1, len(document) + 9)) + document[4:],
        )
    )


class _Writer:
    """Writer of documents.

    Args:
        oddness: Chance of each field to be unlike those of the other documents.
    """

    def __init__(self, chance: Random, oddness: float) -> None:
        self._chance, self._oddness = chance, oddness
        self._makers = (
            *(self._text, self._text, self._int, self._long, self._double, self._boolean, self._date, self._decimal),
            *(self._object_id, self._binary, self._uuid, lambda: (rb.NULL, b"")),
        )

    def layout(self, depth: int) -> Layout:
        names = self._chance.sample(_NAMES, self._chance.randint(0, 6))
        return [(name, self._maker(depth - 1)) for name in names]

    def document(self, layout: Layout) -> bytes:
        fields = list(layout)
        if self._is_odd():
            self._chance.shuffle(fields)
        return rb.document_of(element for name, make in fields for element in self._elements(name, make))

    def _elements(self, name: bytes, make: Make) -> Iterator[bytes]:
        """Yield a field's element: once, or oddly not at all, twice, with another type or by another name."""
        if not self._is_odd():
            yield rb.element(name, *make())
            return
        oddity = self._chance.randrange(5)
        if oddity == 0:
            return
        if oddity == 1:
            yield rb.element(name, *make())
        name = self._chance.choice(_ODD_NAMES) if oddity == 2 else name
        yield rb.element(name, *(self._rare if oddity == 3 else self._maker(1) if oddity == 4 else make)())

    def _maker(self, depth: int) -> Make:
        """Return a maker of values that are alike."""
        kind = self._chance.random() if depth > 0 else 0.0
        if kind < 0.5:
            return self._chance.choice(self._makers)
        if kind < 0.7:
            layout = self.layout(depth)
            return lambda: (rb.DOCUMENT, self.document(layout))
        make, most = self._maker(depth - 1), self._chance.choice((0, 3, 12))
        return lambda: (rb.ARRAY, self._array(make, self._chance.randint(0, most)))

    def _array(self, make: Make, count: int) -> bytes:
        keys = [b"%d" % number for number in range(count)]
        if count and self._is_odd():
            keys[self._chance.randrange(count)] = self._chance.choice((b"", b"0", b"1", b"00", b"x", b"11"))
        elements = [(self._maker(1) if self._is_odd() else make)() for _ in keys]
        return rb.document_of(rb.element(key, *value) for key, value in zip(keys, elements, strict=True))

    def _is_odd(self) -> bool:
        return self._chance.random() < self._oddness

    def _text(self) -> Value:
        text = self._chance.choice(_NOT_UTF_8) if self._is_odd() else self._chance.choice(_TEXTS).encode()
        return rb.STRING, rb.string_value(text)

    def _int(self) -> Value:
        return rb.INT32, struct.pack("<i", self._chance.choice(_WHOLE))

    def _long(self) -> Value:
        return rb.INT64, struct.pack("<q", self._chance.choice((*_WHOLE, *_LONG) if self._is_odd() else _WHOLE))

    def _double(self) -> Value:
        return rb.DOUBLE, struct.pack("<d", self._chance.choice((*_DOUBLES, self._chance.random())))

    def _boolean(self) -> Value:
        return rb.BOOLEAN, b"\2" if self._is_odd() else self._chance.choice((b"\0", b"\1"))

    def _date(self) -> Value:
        return rb.DATE, struct.pack("<q", self._chance.choice((*_DATES, *_LONG) if self._is_odd() else _DATES[-2:]))

    def _decimal(self) -> Value:
        if self._is_odd():
            return rb.DECIMAL128, self._chance.choice(
                (self._chance.randbytes(16), Decimal128(self._chance.choice(_DECIMALS)).bid)
            )
        return rb.DECIMAL128, Decimal128(f"{self._chance.randint(-999, 999)}.{self._chance.randint(0, 99):02d}").bid

    def _object_id(self) -> Value:
        return rb.OBJECT_ID, self._chance.randbytes(12)

    def _binary(self) -> Value:
        content = self._chance.randbytes(self._chance.choice((0, 3, 16)))
        subtype = self._chance.choice((0, 2, 4, 6)) if self._is_odd() else 0
        return rb.BINARY, struct.pack("<iB", len(content), subtype) + content

    def _uuid(self) -> Value:
        return rb.BINARY, struct.pack("<iB", 16, 4) + self._chance.randbytes(16)

    def _rare(self) -> Value:
        """Return a value of a type that has no column."""
        code, scope = rb.string_value(b"f"), rb.document_of(())
        return self._chance.choice(
            (
                *((kind, b"") for kind in (rb.UNDEFINED, rb.MIN_KEY, rb.MAX_KEY)),
                *((kind, rb.string_value(self._chance.choice(_NOT_UTF_8))) for kind in (rb.SYMBOL, rb.CODE)),
                *((kind, rb.string_value(b"text")) for kind in (rb.SYMBOL, rb.CODE)),
                (rb.TIMESTAMP, self._chance.randbytes(8)),
                (rb.REGEX, b"a\0i\0"),
                (rb.DB_POINTER, rb.string_value(b"x") + b"o" * 12),
                (rb.CODE_WITH_SCOPE, struct.pack("<i", 4 + len(code) + len(scope)) + code + scope),
            )
        )
