"""Decoding: a value that fits its column is stored unchanged; any other value is rescued by path, with its type."""

from __future__ import annotations

import json
import struct
import uuid
from decimal import Decimal
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion, UuidRepresentation
from decoding import decoded_alone, decoded_together
from hypothesis import given
from hypothesis import strategies as st

from strandline.model.shape import Shape
from strandline.silver.decode.decoder import Decoder
from strandline.silver.schema.census import CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, evolve

_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    uuid_representation=UuidRepresentation.STANDARD, datetime_conversion=DatetimeConversion.DATETIME_MS
)


def encoded(document: dict[str, Any]) -> bytes:
    return bson.encode(document, codec_options=_OPTIONS)


def decoded(kind: str, value: Any, **more: Any) -> tuple[Any, dict[str, Any] | None]:
    shape, document = Shape("struct", fields={"x": Shape(kind, **more)}), encoded({"x": value})
    (column,), rescued = Decoder(shape).decode(document)
    many = [document] * 50
    assert repr(decoded_together(shape, many)) == repr(decoded_alone(shape, many))
    return column, json.loads(rescued) if rescued else None


MS = bson.DatetimeMS


# scenario: K05, L07, L08
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", -(2**31), -(2**31)),
        ("long", 7, 7),
        ("long", bson.Int64(2**63 - 1), 2**63 - 1),
        ("double", 0.1, 0.1),
        ("double", 3, 3.0),
        ("string", "é\0🛫", "é\0🛫"),
        ("bool", False, False),
        ("objectId", bson.ObjectId("0123456789ab0123456789ab"), "0123456789ab0123456789ab"),
        ("date", MS(-62135596800000), -62135596800000000),
        ("date", MS(253402300799999), 253402300799999000),
        ("uuid", uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("binary", b"\0\xff", b"\0\xff"),
        ("json", 5, '{ "$numberInt" : "5" }'),
        ("variant", {"a": [1]}, '{ "a" : [ { "$numberInt" : "1" } ] }'),
    ],
)
def test_fitting_values_are_exact(kind: str, value: Any, expected: Any) -> None:
    assert decoded(kind, value) == (expected, None)


def test_a_negative_zero_keeps_its_sign_in_a_double() -> None:
    assert str(decoded("double", -0.0)[0]) == "-0.0"


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("1.25", True),
        ("-1.2", True),
        ("7", True),
        ("1E2", True),
        ("1.256", False),
        ("NaN", False),
        ("-Infinity", False),
        ("-0", False),
        ("0.00", True),
        ("0.0000", True),
        ("0E-6176", True),
        ("0E+6111", True),
        ("1.5000", True),
        ("1E+35", True),
        ("1E+36", False),
    ],
)
def test_a_decimal_fits_only_with_all_its_digits(text: str, fits: bool) -> None:
    column, rescued = decoded("decimal", bson.Decimal128(text), scale=2)
    assert (
        (column == Decimal(text) and rescued is None)
        if fits
        else (column is None and rescued == {"x": {"type": "decimal", "value": rescued["x"]["value"]}})
    )


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**30), max_value=10**30))
def test_decimals_survive_or_are_rescued(number: Decimal) -> None:
    column, rescued = decoded("decimal", bson.Decimal128(number), scale=3)
    assert (column is None) == (rescued is not None)
    assert column is None or column == number


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 37))
def test_whole_numbers_fit_a_decimal_with_all_their_digits_or_are_rescued(number: int, scale: int) -> None:
    for value in (number, bson.Int64(number)) if abs(number) < 2**31 else (bson.Int64(number),):
        column, rescued = decoded("decimal", value, scale=scale)
        assert (column is None) == (len(str(abs(number))) > 38 - scale and number != 0)
        assert column is None or (column == number and rescued is None)


def test_values_that_json_parsers_refuse_are_kept_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,), _ = Decoder(Shape("struct", fields={"x": Shape("variant")})).decode(encoded({"x": {"n" * 50_001: 1}}))
    assert list(json.loads(whole)) == ["$bson"]
    _, rescued = Decoder(Shape("struct", fields={})).decode(encoded({"n" * 50_001: 1}))
    assert rescued is not None
    assert list(json.loads(rescued)) == ["n" * 100 + "…"]
    monkeypatch.setattr("strandline.silver.decode.scalars.LARGEST_JSON", 50)
    monkeypatch.setattr("strandline.silver.decode.scalars._LARGEST_BYTES", 100)
    (size,), _ = Decoder(Shape("struct", fields={"x": Shape("variant")})).decode(encoded({"x": ["a" * 120]}))
    assert json.loads(size) == {"$bytes": 133}


# scenario: K03, K08, L09, U11
@pytest.mark.parametrize(
    ("kind", "value", "type_name"),
    [
        ("int", "text", "string"),
        ("int", bson.Int64(5), "long"),
        ("string", 5, "int"),
        ("string", bson.ObjectId(), "objectId"),
        ("objectId", "0123456789ab0123456789ab", "string"),
        ("date", MS(253402300800000), "date"),
        ("date", MS(-(2**63)), "date"),
        ("binary", bson.Binary(b"x", 6), "binData"),
        ("uuid", bson.Binary(b"short", 4), "binData"),
        ("long", 1.5, "double"),
        ("double", bson.Int64(2**53 + 1), "long"),
        ("double", bson.Int64(2**63 - 1), "long"),
        ("bool", bson.MinKey(), "minKey"),
        ("struct", [1], "array"),
        ("array", {"a": 1}, "object"),
    ],
)
def test_unfitting_values_are_rescued_with_their_type(kind: str, value: Any, type_name: str) -> None:
    more: dict[str, Any] = (
        {"fields": {"a": Shape("int")}} if kind == "struct" else {"element": Shape("int")} if kind == "array" else {}
    )
    column, rescued = decoded(kind, value, **more)
    assert column is None
    assert rescued is not None
    assert rescued["x"]["type"] == type_name
    assert rescued["x"]["value"] is not None


def test_a_misfit_deep_inside_is_rescued_by_its_path_and_leaves_the_rest_in_place() -> None:
    shape = Shape(
        "struct",
        fields={"x": Shape("array", element=Shape("struct", fields={"a": Shape("int"), "b": Shape("string")}))},
    )
    (column,), rescued = Decoder(shape).decode(encoded({"x": [{"a": 1, "b": "s"}, {"a": "no", "b": "t", "c": True}]}))
    assert column == [{"a": 1, "b": "s"}, {"a": None, "b": "t"}]
    assert rescued is not None
    assert set(json.loads(rescued)) == {"x.1.a", "x.1.c"}


# scenario: M18
def test_the_second_of_two_equal_names_is_rescued() -> None:
    body = b"\x10x\0" + struct.pack("<i", 1) + b"\x10x\0" + struct.pack("<i", 2)
    (column,), rescued = Decoder(Shape("struct", fields={"x": Shape("int")})).decode(
        struct.pack("<i", len(body) + 5) + body + b"\0"
    )
    assert column == 1
    assert json.loads(str(rescued)) == {"x": {"type": "int", "value": {"$numberInt": "2"}}}


def test_values_that_parse_json_refuses_are_kept_as_bytes() -> None:
    broken = encoded({"x": "XXXX"}).replace(b"XXXX", b"\xff\xfe\xfd\xfc")
    (column,), rescued = Decoder(Shape("struct", fields={"x": Shape("string")})).decode(broken)
    assert column is None
    assert set(json.loads(str(rescued))["x"]["value"]) == {"$bson"}
    (column,), rescued = Decoder(Shape("struct", fields={"x": Shape("variant")})).decode(broken)
    assert set(json.loads(column)) == {"$bson"}
    assert rescued is None


_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1).map(bson.Int64),
        st.integers(-9, 9),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab.$", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "A", "_op", ""]), _values, max_size=4))
def test_columns_and_rescued_values_hold_the_whole_document(document: dict[str, Any]) -> None:
    """Every leaf that is not null is in a column or in ``_rescued``."""
    raw = encoded(document)
    shape, _ = evolve(Shape("struct"), CensusTaker(8).count([raw]), ColumnLimits())
    values, rescued = Decoder(shape).decode(raw)
    shapes = dict(shape.columns())
    kept = sum(
        _leaves(value) if not shapes[name].holds_variant else _leaves(_parsed(value))
        for name, value in zip(shapes, values, strict=True)
    )
    assert kept + _rescued_leaves(rescued) >= _leaves(document)


def _parsed(value: Any) -> Any:
    """Values, with the JSON texts of VARIANTs parsed."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.loads(value)
    if isinstance(value, list):
        return [_parsed(inner) for inner in value]
    return {name: _parsed(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def _leaves(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_leaves, value.values()))
    if isinstance(value, list):
        return sum(map(_leaves, value))
    return 0 if value is None else 1


def _rescued_leaves(rescued: str | None) -> int:
    return sum(_leaves(entry["value"]) for entry in json.loads(rescued).values()) if rescued else 0
