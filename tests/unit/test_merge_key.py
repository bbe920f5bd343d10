"""Two `_id`s have equal keys if and only if MongoDB treats them as equal (tests/integration compares with a server)."""

from __future__ import annotations

import datetime
import uuid
from itertools import combinations

import bson
import pytest
from bson.codec_options import CodecOptions, UuidRepresentation
from hypothesis import given
from hypothesis import strategies as st

from strandline.model.bson.merge_key import document_merge_key
from strandline.model.bson.raw import MalformedBson

_OPTIONS: CodecOptions[dict[str, object]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


def key(value: object) -> str:
    return document_merge_key(bson.encode({"_id": value}, codec_options=_OPTIONS))


# scenario: L10
@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, bson.Int64(1), bson.Decimal128("1"), bson.Decimal128("1.00"), bson.Decimal128("0.1E1")),
        (0, -0.0, 0.0, bson.Decimal128("-0"), bson.Decimal128("0E+10")),
        (float("nan"), bson.Decimal128("NaN"), bson.Decimal128("-NaN")),
        (float("inf"), bson.Decimal128("Infinity")),
        (float("-inf"), bson.Decimal128("-Infinity")),
        (2.5, bson.Decimal128("2.50")),
        (bson.Int64(2**53 + 1), bson.Decimal128("9007199254740993")),
        (5_000_000_000.0, bson.Int64(5_000_000_000), bson.Decimal128("5E9")),
        ({"a": 1, "b": [1]}, {"a": 1.0, "b": [bson.Int64(1)]}),
        (1.125899906842624e37, bson.Decimal128("11258999068426240000000000000000000E3")),
    ],
)
def test_equal_ids_have_equal_keys(equal: tuple[object, ...]) -> None:
    assert len({key(value) for value in equal}) == 1


# scenario: L03, M17
def test_different_ids_have_different_keys() -> None:
    different = [
        1,
        "1",
        True,
        None,
        1.5,
        0.1,
        bson.Decimal128("0.1"),
        bson.Int64(2**53 + 1),
        float(2**53),
        "a",
        "A",
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        {"$oid": "0" * 24},
        {"$$oid": "0" * 24},
        bson.ObjectId("0" * 24),
        "0" * 24,
        b"\0",
        bson.Binary(b"\0", 5),
        uuid.UUID(int=0),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        1577836800000,
        bson.Timestamp(1, 0),
        bson.Timestamp(0, 1),
        bson.MinKey(),
        bson.MaxKey(),
        {},
        {"a": None},
        {"a": {}},
        {"a": []},
        {"": 1},
        '{"$oid": "x"}',
        "NaN",
        float("nan"),
        bson.Regex("a"),
    ]
    for one, other in combinations(different, 2):
        assert key(one) != key(other), (one, other)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_have_equal_keys_exactly_when_they_are_equal(one: float, other: float) -> None:
    assert (key(one) == key(other)) == (one == other)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_whole_number_is_one_key_in_every_width(number: int) -> None:
    assert key(bson.Int64(number)) == key(bson.Decimal128(str(number)))
    if float(number) == number:
        assert key(float(number)) == key(bson.Int64(number))


@given(st.text(), st.text())
def test_only_equal_texts_have_equal_keys(one: str, other: str) -> None:
    assert (key(one) == key(other)) == (one == other)


def test_invalid_utf8_and_its_replacement_text_are_different_keys() -> None:
    text, name = bson.encode({"_id": "a\\xff"}), bson.encode({"_id": {"a\\xff": 1}})
    broken_text, broken_name = bson.encode({"_id": "aQQQQ"}), bson.encode({"_id": {"aQQQQ": 1}})
    for whole, broken in ((text, broken_text), (name, broken_name)):
        assert document_merge_key(whole) != document_merge_key(broken.replace(b"QQQQ", b"\xff\xff\xff\xff"))
    assert document_merge_key(broken_text.replace(b"QQQQ", b"\xffQQQ")) == '{"$string": "61ff515151"}'
    assert document_merge_key(broken_name.replace(b"QQQQ", b"\xffQQQ")) == '{"$invalid 61ff515151": 1}'


@pytest.mark.parametrize("value", [bson.ObjectId(), 17, "text"])
def test_a_document_that_is_cut_off_has_no_key(value: object) -> None:
    whole = bson.encode({"_id": value})
    for length in range(4, len(whole)):
        with pytest.raises(MalformedBson):
            document_merge_key(whole[:length])
        with pytest.raises(MalformedBson):
            document_merge_key(length.to_bytes(4, "little") + whole[4:])
