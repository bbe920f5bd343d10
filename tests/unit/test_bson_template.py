"""A template reads the same values as a walk over the bytes, or leaves the document to the walk."""

from __future__ import annotations

import struct
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from hypothesis import given
from hypothesis import strategies as st

from strandline.model.bson import raw as rb
from strandline.model.bson.raw import MalformedBson
from strandline.model.bson.template import BsonTemplate, Leaf, Path
from strandline.model.shape import Shape
from strandline.silver.decode.decoder import Decoder
from strandline.silver.schema.census import CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, evolve

ENOUGH = 30
"""Documents walked before the cache learns a template."""

_NAMES = st.sampled_from(["a", "b", "ä", "a.b", "$c", ""])
_TEXTS = st.sampled_from(["", "x", "é🛫", "a\0b", "\0", "x\0\2b\0\2\0\0\0y"]) | st.text(max_size=5)
_SCALARS = st.one_of(
    _TEXTS,
    st.integers(-5, 5),
    st.integers(2**31, 2**62).map(bson.Int64),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.binary(max_size=6),
    st.sampled_from(
        [Decimal128("1.25"), Decimal128("NaN"), bson.ObjectId(b"123456789abc"), bson.MinKey(), bson.Timestamp(1, 2)]
    ),
    st.sampled_from(
        [bson.Regex("a", "i"), bson.Code("f"), bson.DatetimeMS(0), bson.DatetimeMS(2**60), bson.Binary(b"0" * 16, 4)]
    ),
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=8
)
_DOCUMENTS = st.dictionaries(_NAMES, _VALUES, max_size=4)


def _like(value: Any, data: st.DataObject) -> Any:
    """Return another value, usually of the same layout: other texts and numbers, longer and shorter arrays."""
    if isinstance(value, dict):
        return {name: _like(inner, data) for name, inner in value.items()}
    if isinstance(value, list):
        return [_like(value[0], data) for _ in range(data.draw(st.integers(0, 3)))] if value else []
    if isinstance(value, str):
        return data.draw(_TEXTS)
    if isinstance(value, float):
        return data.draw(st.floats(allow_nan=False))
    return data.draw(st.integers(-9, 9)) if type(value) is int else value


def _damaged(document: bytes, data: st.DataObject) -> bytes:
    at, byte = data.draw(st.integers(0, len(document) - 1)), data.draw(st.sampled_from([0, 1, 2, 4, 5, 65, 200, 255]))
    return document[:at] + bytes((byte,)) + document[at + 1 :]


def _next(first: dict[str, Any], data: st.DataObject) -> bytes:
    document = bson.encode(_like(first, data))
    return _damaged(document, data) if data.draw(st.booleans()) else document


def _outcome(read: Any) -> str:
    try:
        return repr(read())
    except MalformedBson:
        return "damaged"


@given(first=_DOCUMENTS, other=_DOCUMENTS, data=st.data())
def test_a_document_that_follows_many_alike_is_decoded_as_if_it_stood_alone(
    first: Any, other: Any, data: st.DataObject
) -> None:
    known = bson.encode(first)
    shape, _ = evolve(Shape("struct"), CensusTaker(3).count([known, bson.encode(other)]), ColumnLimits(max_depth=3))
    one = _next(first, data)
    alone = _outcome(lambda: Decoder(shape).decode(one))

    def among_others() -> tuple[list[Any], str | None]:
        decoder = Decoder(shape)
        decoder.decode_all([known] * ENOUGH)
        columns, rescued = decoder.decode_all([known, one, None])
        assert [column[2] for column in columns] == [None] * len(columns)
        return [column[1] for column in columns], rescued[1]

    assert _outcome(among_others) == alone


@given(first=_DOCUMENTS, data=st.data(), depth=st.integers(1, 4))
def test_a_document_that_follows_many_alike_is_counted_as_if_it_stood_alone(
    first: Any, data: st.DataObject, depth: int
) -> None:
    known, one = bson.encode(first), _next(first, data)

    def alone() -> dict[str, Any]:
        whole = CensusTaker(depth).count([known])
        whole.merge(CensusTaker(depth).count([one]))
        return whole.to_json()

    assert _outcome(lambda: CensusTaker(depth).count([known] * ENOUGH + [one]).to_json()) == _outcome(alone)


def _everything(_kind: int, _path: Path) -> bool:
    return True


def _layout(document: dict[str, Any]) -> BsonTemplate:
    return BsonTemplate(bson.encode(document), _everything)


def test_a_layout_finds_the_values_of_other_documents() -> None:
    template = _layout({"_id": 1, "name": "Ada", "at": {"x": 1.5}, "tags": ["a"], "lines": [{"n": 1, "text": "t"}]})
    other = {"_id": 7, "name": "", "at": {"x": -2.0}, "tags": ["ä", "", "c"], "lines": []}
    values = template.values(bson.encode(other))
    assert values is not None
    found = dict(template.root.fields)
    name, tags, lines = (found[field] for field in (b"name", b"tags", b"lines"))
    assert isinstance(name, Leaf)
    assert values[name.place] == b"\0"
    elements = values[tags.place]
    assert isinstance(elements, list)
    assert [element[2] for element in elements] == ["ä\0".encode(), b"\0", b"c\0"]
    assert values[lines.place] == []


@pytest.mark.parametrize(
    "other",
    [
        {"a": 1, "b": "x"},
        {"b": "x", "a": "x"},
        {"a": "x"},
        {"a": "x", "b": "x", "c": 1},
        {"a": "x\0y", "b": "x"},
        {"a": "x", "b": "x\0"},
    ],
)
def test_a_document_of_another_layout_matches_no_template(other: dict[str, Any]) -> None:
    assert _layout({"a": "x", "b": "y"}).values(bson.encode(other)) is None


def test_a_text_that_looks_like_the_rest_of_its_document_is_not_taken_for_it() -> None:
    """A zero byte alone would end the first text early, and its rest would look like the second field."""
    template = _layout({"a": "x", "b": bson.Int64(1)})
    hidden = "x\0\x12b\0" + "12345678"
    document = bson.encode({"a": hidden})
    forged = document[:4] + document[4:-2] + b"\0"  # all that the expression asks for
    assert template.values(struct.pack("<i", len(forged)) + forged[4:]) is None
    assert template.values(document) is None


def test_a_text_of_an_array_that_looks_like_more_elements_is_not_taken_for_them() -> None:
    template = _layout({"a": ["x", "y"]})
    assert template.values(bson.encode({"a": ["x\0\x021\0\x02\0\0\0y"]})) is None
    assert template.values(bson.encode({"a": ["x\0\x021\0\x02\0\0\0y", "z"]})) is None


def test_an_array_with_something_between_its_elements_has_no_values() -> None:
    template = _layout({"a": [1, 2]})
    elements = [rb.element(b"0", rb.INT32, b"aaaa"), rb.element(b"1", rb.INT32, b"bbbb")]

    def found(*parts: bytes) -> Any:
        return template.values(rb.document_of([rb.element(b"a", rb.ARRAY, rb.document_of(parts))]))

    assert found(*elements) is not None
    assert found(elements[0], b"\xff", elements[1]) is None
    ten = [rb.element(b"%d" % (number % 10), rb.INT32, b"cccc") for number in range(11)]
    assert found(*ten) is not None, "an element's name says nothing"
    assert found(*ten[:5], b"\xff", *ten[5:]) is None, "as long as if the last name had two digits"


def test_documents_of_many_layouts_are_walked() -> None:
    taker, shape = CensusTaker(8), Shape("struct", fields={"_id": Shape("int")})
    documents = [bson.encode({"_id": number, f"f{number}": number}) for number in range(3_000)]
    assert len(taker.count(documents).fields) == 3_001
    columns, rescued = Decoder(shape).decode_all(documents)
    assert columns == [list(range(3_000))]
    assert None not in rescued


def test_a_document_of_very_many_fields_is_walked() -> None:
    wide = bson.encode({f"f{number}": number for number in range(2_000)})
    with pytest.raises(ValueError, match="too much"):
        BsonTemplate(wide, _everything)
    assert len(CensusTaker(8).count([wide] * ENOUGH).fields) == 2_000


@pytest.mark.parametrize("document", [{"a": "xy"}, {"a": ["xy"]}, {"a": {"b": "xy"}}])
def test_text_without_utf8_is_left_to_the_walk(document: dict[str, Any]) -> None:
    assert _layout(document).values(bson.encode(document).replace(b"xy", b"\xff\xfe")) is None
