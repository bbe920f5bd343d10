"""A row whose columns and rescued values show its document passes; a row with any other value in one place does not."""

from __future__ import annotations

import datetime
import json
import random
import uuid
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import bson
import pyarrow as pa
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion, UuidRepresentation
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.model.bson import raw as rb
from strandline.model.shape import Compatibility, SchemaMode, Shape
from strandline.silver.decode.decoder import Decoder
from strandline.silver.decode.rows import decoding
from strandline.silver.schema.census import CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, ColumnPlan, evolve
from strandline.silver.typed_check import RowCheck, check_row
from strandline.silver.typed_diff import checking

_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    uuid_representation=UuidRepresentation.STANDARD, datetime_conversion=DatetimeConversion.DATETIME_MS
)
_DIGITS = st.integers(-(10**34) + 1, 10**34 - 1)
_DECIMALS = st.one_of(
    st.builds(lambda number, exponent: f"{number}E{exponent}", _DIGITS, st.integers(-40, 40)),
    st.builds(lambda number, exponent: f"{number}E{exponent}", st.integers(-200, 200), st.integers(-4, 4)),
    st.sampled_from(["0.00", "-0.00", "0E-6176", "0E+6111", "NaN", "-Infinity", "1.50", "7"]),
).map(bson.Decimal128)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(bson.Int64),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=4),
    st.builds(bson.Binary, st.binary(min_size=16, max_size=16), st.sampled_from([0, 3, 4, 5])),
    st.integers(-(2**63), 2**63 - 1).map(bson.DatetimeMS),
    st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)).map(
        lambda when: when.replace(microsecond=when.microsecond // 1000 * 1000)
    ),
    st.binary(min_size=12, max_size=12).map(bson.ObjectId),
    st.sampled_from([bson.Regex("a", "i"), bson.MinKey(), bson.Timestamp(1, 2), bson.Code("f")]),
    _DECIMALS,
    _DECIMALS,
)
_NAMES = st.sampled_from(["a", "b", "A", "a.b", "", "_op", "'", "n'", "`", "x" * 256])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Documents that may have one name twice, or a text that is no UTF-8."""
    names = draw(st.lists(_NAMES, max_size=4))
    fields = [bson.encode({name: draw(_VALUES)}, codec_options=_OPTIONS)[4:-1] for name in names]
    if draw(st.booleans()):
        fields.append(rb.element(draw(st.sampled_from([b"a", b"\xff"])), rb.STRING, rb.string_value(b"\xff\xfe")))
    return rb.document_of(fields)


def shape_of(
    raw: list[bytes],
    kind: Compatibility = "native",
    mode: SchemaMode = "infer",
    max_columns: int = 500,
    left_out: Collection[tuple[str, ...]] = (),
) -> Shape:
    limits, plan = ColumnLimits(max_columns, compatibility=kind), ColumnPlan(mode, left_out=frozenset(left_out))
    return evolve(Shape("struct"), CensusTaker(8).count(raw), limits, plan)[0]


def written_rows(raw: list[bytes], shape: Shape) -> pa.RecordBatch:
    """Rows that a silver run would write."""
    columns = {"base_op": ["r"] * len(raw), "envelope": raw, "_key": [None] * len(raw), "_position": [""] * len(raw)}
    decoded = decoding(shape, ["_key", "_position"])(iter(pa.table(columns).to_batches()))
    return pa.Table.from_batches(decoded).combine_chunks().to_batches()[0]


def wrong_rows(rows: pa.RecordBatch, shape: Shape, own_rules_for: int) -> list[dict[str, Any]]:
    """Differences that the comparison reports."""
    compared = checking(shape, own_rules_for=own_rules_for)(iter([rows]))
    return [row for batch in compared for row in batch.to_pylist()]


# promise 6
@given(
    st.lists(documents(), min_size=1, max_size=4),
    st.sampled_from(["portable", "native"]),
    st.sampled_from(["infer", "variant"]),
    st.sampled_from([3, 500]),
    st.sets(st.sampled_from([("a",), ("b", "a"), ("b",)])),
)
@example([bson.encode({"a": bson.Decimal128("0.00")})], "native", "infer", 500, set())
@example([bson.encode({"a": [[1], "x"], "b": [{"a": [1]}]})], "portable", "infer", 500, {("a",), ("b", "a")})
def test_columns_and_rescued_values_show_random_documents(
    raw: list[bytes], kind: Compatibility, mode: SchemaMode, max_columns: int, left_out: set[tuple[str, ...]]
) -> None:
    shape = shape_of(raw, kind, mode, max_columns, left_out)
    for some in (raw, raw * 10):  # the second are decoded together
        rows = written_rows(some, shape)
        assert wrong_rows(rows, shape, 1) == wrong_rows(rows, shape, 10_000) == []


# promise 6
@given(
    st.lists(documents(), min_size=2, max_size=4),
    st.sampled_from(["portable", "native"]),
    st.randoms(use_true_random=False),
)
@example([bson.encode({"a": 0.0}), bson.encode({"a": -0.0})], "native", random.Random(1))
@example([bson.encode({"a": [{"b": 0.0}]}), bson.encode({"a": [{"b": float("nan")}]})], "native", random.Random(1))
@example([bson.encode({"a": [1, 2]}), bson.encode({"a": [1]}), bson.encode({"a": None})], "native", random.Random(1))
def test_values_of_other_rows_are_reported_as_by_the_comparison_row_by_row(
    raw: list[bytes], kind: Compatibility, chance: random.Random
) -> None:
    raw = [rb.document_of([bson.encode({"_id": number})[4:-1], one[4:-1]]) for number, one in enumerate(raw * 10)]
    shape = shape_of(raw, kind)
    rows = written_rows(raw, shape)
    for name in {*rows.schema.names} - {"_key", "_position"}:
        places = [place if chance.random() < 0.7 else chance.randrange(len(raw)) for place in range(len(raw))]
        column = rows[name].take(pa.array(places))
        wrong = rows.set_column(rows.schema.get_field_index(name), name, column)
        assert wrong_rows(wrong, shape, 10_000) == wrong_rows(wrong, shape, 1)


_ROW: dict[str, Any] = {
    "i": 1,
    "l": bson.Int64(2),
    "d": 0.0,
    "m": bson.Decimal128("0.00"),
    "t": "text",
    "o": bson.ObjectId(b"0" * 12),
    "b": True,
    "at": datetime.datetime(2026, 1, 1),
    "bytes": b"x",
    "u": uuid.UUID(int=7),
    "v": bson.Timestamp(1, 2),
    "s": {"x": 1},
    "list": [{"y": 1}, {"y": 2}],
    "none": None,
    "_op": "mine",
}


@pytest.mark.parametrize(
    ("column", "value", "path"),
    [
        ("i", 2, "i"),
        ("i", None, "i"),
        ("i", True, "i"),
        ("l", 3, "l"),
        ("d", -0.0, "d"),
        ("m", Decimal("0.01"), "m"),
        ("m", None, "m"),
        ("t", "Text", "t"),
        ("o", "1" * 24, "o"),
        ("b", False, "b"),
        ("at", 1, "at"),
        ("bytes", b"y", "bytes"),
        ("u", str(uuid.UUID(int=8)), "u"),
        ("v", '{"$timestamp": {"t": 1, "i": 3}}', "v"),
        ("v", None, "v"),
        ("s", {"x": 2}, "s.x"),
        ("s", {"x": None}, "s.x"),
        ("s", None, "s"),
        ("list", [{"y": 1}], "list"),
        ("list", [{"y": 2}, {"y": 1}], "list.0.y"),
        ("none", 1, "none"),
        ("_rescued", None, "_op"),
        ("_rescued", '{"_op": {"type": "string", "value": "yours"}}', "_op"),
        ("_rescued", '{"_op": {"type": "int", "value": "mine"}}', "_op"),
        ("_rescued", '{"_op": {"type": "string", "value": "mine"}, "more": {"type": "int", "value": 1}}', "more"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(column: str, value: Any, path: str) -> None:
    document = bson.encode(_ROW, codec_options=_OPTIONS)
    shape = shape_of([document, bson.encode({"none": 1})])
    names = [name for name, _ in shape.columns()]
    values, rescued = Decoder(shape).decode(document)
    row = {**dict(zip(names, values, strict=True)), "_rescued": rescued} | {column: value}
    assert path in check_row(document, shape, {name: row[name] for name in names}, row["_rescued"]).wrong


def test_a_rescued_value_that_its_column_can_hold_is_late() -> None:
    """As in the rows from before the column had its type."""
    document = bson.encode({"a": bson.Decimal128("0.00"), "b": []})
    shape = Shape("struct", fields={"a": Shape("decimal", 0), "b": Shape("array", element=Shape("int"))})
    rescued = {"a": {"type": "decimal", "value": {"$numberDecimal": "0.00"}}, "b": {"type": "array", "value": []}}
    values = {"a": None, "b": None}
    assert check_row(document, shape, values, json.dumps(rescued)) == RowCheck(late=("a", "b"))
    assert check_row(document, shape, values, None) == RowCheck(wrong=("a", "b"))


def test_a_row_without_a_document_has_no_values() -> None:
    shape = Shape("struct", fields={"a": Shape("int")})
    assert check_row(None, shape, {"a": None}, None) == RowCheck()
    assert check_row(None, shape, {"a": 1}, "{}") == RowCheck(wrong=("a", "_rescued"))
