"""Walking raw BSON without decoding it."""

from __future__ import annotations

import struct
from decimal import Decimal

import bson
import pytest
from bson.decimal128 import Decimal128
from hypothesis import given
from hypothesis import strategies as st

from strandline.model.bson import raw as rb


def test_walks_every_type_in_stored_order() -> None:
    values = {
        "double": 1.5,
        "string": "é",
        "document": {"a": 1},
        "array": [1, 2],
        "binary": bson.Binary(b"x", 5),
        "object_id": bson.ObjectId(),
        "bool": True,
        "date": bson.DatetimeMS(2**62),
        "null": None,
        "regex": bson.Regex("a", "im"),
        "dbref": bson.DBRef("c", 1),
        "code": bson.Code("f()"),
        "scope": bson.Code("f()", {"a": 1}),
        "int": 1,
        "timestamp": bson.Timestamp(7, 3),
        "long": bson.Int64(1),
        "decimal": bson.Decimal128("1.10"),
        "max": bson.MaxKey(),
        "min": bson.MinKey(),
    }
    walked = list(rb.elements(bson.encode(values)))
    assert [name.decode() for _, name, _, _ in walked] == list(values)
    assert [rb.TYPE_NAMES[kind] for kind, _, _, _ in walked][:6] == [
        "double",
        "string",
        "object",
        "array",
        "binData",
        "objectId",
    ]
    assert walked[-1][3] == len(bson.encode(values)) - 1


def test_keeps_the_second_of_two_equal_names() -> None:
    body = b"\x10a\0" + struct.pack("<i", 1) + b"\x10a\0" + struct.pack("<i", 2)
    document = struct.pack("<i", len(body) + 5) + body + b"\0"
    assert [rb.int32_at(document, value) for _, _, value, _ in rb.elements(document)] == [1, 2]


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_truncated_document_is_an_error_never_a_hang(cut: int) -> None:
    document = bson.encode({"text": "some words", "number": 5, "nested": {"a": [1, 2]}})
    with pytest.raises(rb.MalformedBson):
        list(rb.elements(document[:-cut]))


# scenario: K04
@given(st.binary(max_size=60))
def test_any_bytes_end_in_a_bounded_error_or_a_walk(raw: bytes) -> None:
    try:
        for _, _, value, end in rb.elements(raw):
            assert 0 <= value <= end <= len(raw)
    except rb.MalformedBson:
        pass


def test_a_wrapped_value_reads_back() -> None:
    document = bson.encode({"x": {"deep": [1, "two"]}})
    kind, value, end = rb.field(document, b"x") or (0, 0, 0)
    assert bson.decode(rb.as_document(kind, document[value:end], b"y")) == {"y": {"deep": [1, "two"]}}


# scenario: L08, L14
@pytest.mark.parametrize(
    ("value", "json"),
    [
        (1, '{ "$numberInt" : "1" }'),
        (bson.Int64(2**60), '{ "$numberLong" : "1152921504606846976" }'),
        (-0.0, '{ "$numberDouble" : "-0.0" }'),
        (bson.Decimal128("1.10"), '{ "$numberDecimal" : "1.10" }'),
        ("a:b", '"a:b"'),
    ],
)
def test_canonical_json_of_one_value_keeps_its_type(value: object, json: str) -> None:
    document = bson.encode({"x": value})
    kind, start, end = rb.field(document, b"x") or (0, 0, 0)
    assert rb.canonical_value(kind, document[start:end]) == json


_NUMBERS = st.decimals(allow_nan=False, places=3, min_value=-(10**20), max_value=10**20).map(
    lambda number: Decimal128(number).bid
)


@given(st.binary(min_size=16, max_size=16) | _NUMBERS)
def test_a_decimal_has_all_digits_that_the_driver_reads(bid: bytes) -> None:
    assert repr(rb.decimal_at(b"--" + bid, 2)) == repr(Decimal128.from_bid(bid).to_decimal())


def test_a_decimal_with_too_many_digits_is_zero() -> None:
    high, low = divmod(10**34, 2**64)
    negative = 1 << 63
    assert repr(rb.decimal_at(struct.pack("<QQ", low, high | 6174 << 49), 0)) == repr(Decimal("0.00"))
    assert repr(rb.decimal_at(struct.pack("<QQ", low, high | 6176 << 49 | negative), 0)) == repr(Decimal("-0"))


@pytest.mark.parametrize(
    "text", ["0", "-0", "0E+6111", "1E-6176", "9" * 34, "-1.50", "NaN", "sNaN", "Infinity", "-Infinity"]
)
def test_a_decimal_of_any_size_has_all_digits(text: str) -> None:
    assert repr(rb.decimal_at(Decimal128(text).bid, 0)) == repr(Decimal128(text).to_decimal())
