"""Documents of a batch that are read together: which of them leave it, and that all are read as if each stood alone."""

from __future__ import annotations

import struct
from itertools import count
from typing import Any

import bson
import pyarrow as pa
import pytest
from decoding import decoded_alone, decoded_together

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch
from strandline.model.bson.columnar.names import hashed_names
from strandline.model.bson.raw import MalformedBson
from strandline.model.shape import Shape
from strandline.silver.schema.batch_census import count_batch
from strandline.silver.schema.census import CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, evolve

ENOUGH = 100
"""Documents of a batch that are read together."""


def batch_of(*documents: bytes) -> pa.Array:
    return pa.array(documents, pa.binary())


def left(documents: list[bytes]) -> int:
    """Count how many documents leave the batch. All are counted and decoded as alone."""
    together, alone = CensusTaker(8), CensusTaker(8).count(documents)
    number = count_batch(together, batch_of(*documents))
    assert together.census == alone
    shape, _ = evolve(Shape("struct"), alone, ColumnLimits())
    # By their texts, because NaN is not equal to NaN, and 0.0 is equal to -0.0.
    assert repr(decoded_together(shape, documents)) == repr(decoded_alone(shape, documents))
    return number


def alike(number: int) -> bytes:
    return bson.encode({"_id": number, "name": f"é{number}", "n": number, "tags": ["x"] * (number % 3)})


def test_documents_that_lack_fields_hold_nulls_and_other_types_or_have_another_order_stay_in_the_batch() -> None:
    documents = []
    for number in range(ENOUGH):
        fields: dict[str, Any] = {"_id": number, "a name of some bytes": "x", "other": number, "in": {"x": 1, "y": [2]}}
        if number % 3 == 0:
            fields["a name of some bytes"] = None
        if number % 5 == 0:
            del fields["other"]
        if number % 7 == 0:
            fields = dict(reversed(fields.items()))
        if number % 11 == 0:
            fields["in"] = {"y": ["text", {"z": 1.5}, []]}
        documents.append(bson.encode(fields))
    assert left(documents) == 0


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 99, 300])
@pytest.mark.parametrize("value", [1.5, 7, True, bson.ObjectId(b"o" * 12)])
def test_arrays_of_numbers_of_any_length_stay_in_the_batch(value: object, size: int) -> None:
    assert left([bson.encode({"_id": number, "v": [value] * (size + number % 5)}) for number in range(ENOUGH)]) == 0


def test_an_array_that_begins_like_one_of_numbers_is_walked() -> None:
    values: list[list[Any]] = [[1, 2], [1, "x"], [1, None, 2], [1, 2.5], [1.5, bson.Int64(1)], []]
    assert left([bson.encode({"v": values[number % 6]}) for number in range(ENOUGH)]) == 0


@pytest.mark.parametrize(
    "numbers",
    [
        ("100", "0.05", "-7.70"),
        ("9999999999999999.99", "1"),
        ("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
        ("9223372036854775807", "0.01"),
        ("0", "-0", "0.000", "0E+10", "0E-40", "1"),
        ("NaN", "-Infinity", "1.5"),
        ("0.00",),
        ("0.00", "7", "1.500", "120E-4"),
        ("-0.00", "NaN"),
        ("0E-6176", "1E-3"),
        ("0E+6111", "-120"),
        ("1E+18", "1E+19", "0.1"),
        ("9" * 34, "1"),
    ],
)
def test_decimals_are_read_with_all_their_digits(numbers: tuple[str, ...]) -> None:
    documents = [bson.encode({"n": bson.Decimal128(numbers[number % len(numbers)])}) for number in range(ENOUGH)]
    assert left(documents) == 0


def test_a_decimal_that_no_driver_writes_has_no_digits() -> None:
    strange = rb.document_of([rb.element(b"n", rb.DECIMAL128, struct.pack("<QQ", 5, 0x6000000000000000))])
    assert left([strange, bson.encode({"n": bson.Decimal128("1.5")})] * ENOUGH) == 0


def int_at(name: bytes) -> bytes:
    return rb.element(name, rb.INT32, struct.pack("<i", 1))


def text_at(name: bytes) -> bytes:
    return rb.element(name, rb.STRING, rb.string_value(b"x"))


def inner(*elements: bytes) -> bytes:
    return rb.element(b"in", rb.DOCUMENT, rb.document_of(elements))


def array(*elements: bytes) -> bytes:
    return rb.element(b"list", rb.ARRAY, rb.document_of(elements))


def length(size: int) -> bytes:
    return struct.pack("<i", size)


def document(
    *, n: bytes = int_at(b"n"), within: bytes = inner(int_at(b"n")), items: bytes = array(text_at(b"0"))
) -> bytes:
    return rb.document_of((int_at(b"_id"), n, within, items))


ODD = {
    "a name twice": document(n=int_at(b"n") * 2),
    "a name twice, of two types": document(n=int_at(b"n") + text_at(b"n")),
    "a name twice below": document(within=inner(int_at(b"n"), int_at(b"n"))),
    "a name that is not UTF-8": document(n=int_at(b"\xff")),
    "a name of 256 bytes": document(n=int_at(b"n" * 256)),
    "a name of 50,001 bytes": document(n=int_at(b"n" * 50_001)),
    "a key that is not its number": document(items=array(text_at(b"1"))),
    "a key with a zero before it": document(items=array(text_at(b"00"))),
    "a number's key that is not its number": document(items=array(int_at(b"1"))),
    "a regular expression": document(n=rb.element(b"n", rb.REGEX, b"a\0i\0")),
    "a text without its zero byte": document(n=rb.element(b"n", rb.STRING, length(0))),
    "a field that no other has": document(n=int_at(b"own")),
    "an array within an array, as no other has": document(
        items=array(rb.element(b"0", rb.ARRAY, rb.document_of([text_at(b"0")])))
    ),
    "bytes after its end": document() + b"more",
    "a length of an element's code that is too small": document(n=rb.element(b"n", rb.CODE_WITH_SCOPE, length(4))),
}


@pytest.mark.parametrize("odd", ODD)
def test_of_a_batch_only_the_odd_document_is_decoded_alone(odd: str) -> None:
    documents = [document()] * ENOUGH
    assert left(documents) == 0
    documents[7] = ODD[odd]
    assert left(documents) == 1


LAST = document()[:-1]
"""A document without its last byte."""

DAMAGED = {
    "a length that is too large": length(6) + b"\0\0",
    "a length that is too small": length(4) + b"\0\0",
    "nothing": b"",
    "a byte before its end": length(len(LAST) + 2) + LAST[4:] + b"\x10\0",
    "a type without a name": length(len(LAST) + 3) + LAST[4:] + b"\x10n\0",
    "an unknown type": document(n=rb.element(b"n", 0x20, b"")),
    "a number that reaches into the end": document(
        within=rb.element(b"in", rb.DOCUMENT, length(10) + b"\x10n\0\1\0\0")
    ),
    "a text that reaches into the end": document(items=rb.element(b"list", rb.STRING, length(3) + b"x\0")),
    "a text that reaches beyond it": document(n=rb.element(b"n", rb.STRING, length(1_000) + b"x\0")),
    "a text of a negative length": document(n=rb.element(b"n", rb.STRING, length(-1))),
    "a document inside that is longer": document(within=rb.element(b"in", rb.DOCUMENT, length(90) + b"\0")),
    "a document inside that is too short": document(within=rb.element(b"in", rb.DOCUMENT, length(4) + b"\0")),
    "a number that reaches beyond its array": document(
        items=rb.element(b"list", rb.ARRAY, length(17) + int_at(b"0") + b"\x101\0\1\0\0")
    ),
    "damage inside": document(within=rb.element(b"in", rb.DOCUMENT, length(8) + b"\x10n\0\0")),
    "a document inside without its zero byte": document(
        within=rb.element(b"in", rb.DOCUMENT, length(rb.EMPTY) + b"\x10")
    ),
    "an array of numbers without its zero byte": document(
        items=rb.element(b"list", rb.ARRAY, length(rb.EMPTY + 7) + int_at(b"0") + b"\x10")
    ),
    "an empty array without its zero byte": document(items=rb.element(b"list", rb.ARRAY, length(rb.EMPTY) + b"\x10")),
    "damage in an array": document(items=rb.element(b"list", rb.ARRAY, length(8) + b"\x020\0\0")),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_document_is_an_error_together_as_alone(damage: str) -> None:
    documents = [document()] * ENOUGH
    documents[7] = DAMAGED[damage]
    with pytest.raises(MalformedBson) as alone:
        CensusTaker(8).count(documents)
    with pytest.raises(MalformedBson) as together:
        count_batch(CensusTaker(8), batch_of(*documents))
    assert str(together.value) == str(alone.value)


def test_names_with_equal_hashes_stay_two_fields() -> None:
    one, other = colliding_names()
    names = BsonBatch(batch_of(one + b"\0", other + b"\0"))
    hashes, _ = hashed_names(names, names.starts)
    assert hashes[0] == hashes[1]
    documents = [bson.encode({(one if number % 2 else other).decode(): number}) for number in range(ENOUGH)]
    assert left(documents) == ENOUGH // 2


def colliding_names() -> tuple[bytes, bytes]:
    """Return two names of sixteen bytes: their last eight bytes undo how the hashes of their first eight differ."""

    def first_hash(word: bytes) -> int:
        mixed = int.from_bytes(word, "little") * 0x9E3779B97F4A7C15 % 2**64
        return mixed ^ mixed >> 29

    start, end = b"aaaaaaaa", b"bbbbbbbb"
    for number in count():
        other = b"%08d" % number
        rest = (first_hash(start) ^ first_hash(other) ^ int.from_bytes(end, "little")).to_bytes(8, "little")
        if rest.isascii() and b"\0" not in rest:
            return start + end, other + rest
    raise AssertionError


def test_a_batch_of_few_documents_is_read_one_by_one() -> None:
    assert left([alike(number) for number in range(5)]) == 5
    assert left([]) == 0


def test_documents_of_many_fields_or_long_arrays_leave_the_batch() -> None:
    wide = bson.encode({f"f{number}": number for number in range(1_500)})
    long = bson.encode({"v": ["x"] * 1_500})
    assert left([alike(number) for number in range(ENOUGH)] + [wide] * 3 + [long] * 3) == 6
