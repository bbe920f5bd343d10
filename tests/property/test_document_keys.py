"""The short way to the key of an `_id` in the first field finds the same key as the walk, or the same damage."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal

import bson
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.model.bson import merge_key as keys
from strandline.model.bson import raw as rb

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(bson.Int64),
    st.floats(),
    st.text(max_size=30),
    st.binary(max_size=20),
    st.binary(min_size=16, max_size=16).map(lambda uuid: bson.Binary(uuid, 4)),
    st.binary(max_size=9).map(lambda old: bson.Binary(old, 2)),
    st.binary(min_size=12, max_size=12).map(bson.ObjectId),
    st.builds(bson.Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)),
    st.decimals(allow_nan=True, places=3, min_value=-1000, max_value=1000).map(lambda n: bson.Decimal128(str(n))),
    st.sampled_from([bson.Regex("a", "i"), bson.Code("x"), bson.Code("x", {}), bson.MinKey(), bson.MaxKey()]),
)
IDS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab$"), inner))


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Documents whose `_id` is the first field, a later one, or missing."""
    names = draw(st.lists(st.sampled_from(["_id", "_id", "_", "_idx", "a"]), max_size=3))
    return rb.document_of(bson.encode({name: draw(IDS)})[4:-1] for name in names)


def outcome(read: Callable[[bytes], object], raw: bytes) -> object:
    try:
        return read(raw)
    except ValueError as error:
        return type(error), str(error)


def walked(raw: bytes, start: int = 0) -> object:
    found = rb.field(raw, b"_id", start)
    return None if found is None else keys.merge_key(raw, *found)


@given(documents(), st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=1))
@example(bson.encode({"_id": -1}), 0.6, b"\0")  # one byte more: the document then ends at a byte that is not 0
def test_the_key_is_the_one_that_the_walk_finds(raw: bytes, place: float, other: bytes) -> None:
    at = int(place * len(raw))
    for some in (raw, raw[:at], raw[:at] + other + raw[at + 1 :], raw[:at] + other + raw[at:], raw + other):
        assert outcome(keys.id_merge_key, some) == outcome(walked, some)


@given(documents(), st.binary(max_size=9), st.binary(max_size=9))
def test_a_document_inside_other_bytes_has_the_same_key(raw: bytes, before: bytes, after: bytes) -> None:
    inside = before + raw + after
    assert keys.id_merge_key(inside, len(before)) == walked(inside, len(before)) == keys.id_merge_key(raw)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60).map(float))
def test_a_whole_double_has_the_key_of_its_decimal(number: float) -> None:
    key = keys.id_merge_key(bson.encode({"_id": number}))
    assert key == keys._decimal(Decimal(number)) or (key is not None and key.startswith('{"$double"'))
