"""The census, and the evolution of a table's shape."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from dataclasses import replace
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions, UuidRepresentation
from hypothesis import given
from hypothesis import strategies as st

from strandline.model.bson import raw as rb
from strandline.model.shape import NameAdjustment, Shape, declared_columns, fold_case
from strandline.silver.decode.decoder import Decoder
from strandline.silver.schema.census import Census, CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, ColumnPlan, SchemaChange, evolve, with_columns_of

_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


def encoded(*documents: dict[str, Any]) -> list[bytes]:
    return [bson.encode(document, codec_options=_OPTIONS) for document in documents]


def shape_of(*documents: dict[str, Any], guards: ColumnLimits = ColumnLimits()) -> Shape:
    return evolve(Shape("struct"), CensusTaker(guards.max_depth).count(encoded(*documents)), guards)[0]


def names_of(shape: Shape) -> dict[str, str]:
    """Columns of a shape, each with its field's name."""
    return {name: shape.field_name_of(name) for name, _ in shape.columns()}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("none", {"_id": "_id", "a b": "a b", "a_b": "a_b", "1x": "1x", "é": "é", "s": "s"}),
        ("avro", {"_id": "_id", "a_b": "a b", "_x": "1x", "_": "é", "s": "s"}),
        (
            "avro_unicode",
            {"_id": "_id", "a_u0020b": "a b", "a_u005fb": "a_b", "_u0031x": "1x", "_u00e9": "é", "s": "s"},
        ),
    ],
)
def test_columns_are_named_as_asked_for_and_two_fields_never_share_one(
    mode: NameAdjustment, expected: dict[str, str]
) -> None:
    document = {"_id": 1, "a b": 1, "a_b": 2, "1x": 3, "é": 4, "s": {"$d": 5, "😀": 6}}
    shape = shape_of(document, guards=ColumnLimits(names=mode))
    assert names_of(shape) == expected
    assert Shape.from_json(shape.to_json()) == shape
    nested = {"none": ["$d", "😀"], "avro": ["_d", "_"], "avro_unicode": ["_u0024d", "_ud83d_ude00"]}
    assert list(shape.fields["s"].fields) == nested[mode]
    values, rescued = Decoder(shape).decode(encoded(document)[0])
    found = dict(zip(expected, values, strict=True))
    assert found.pop("s") == dict(zip(nested[mode], (5, 6), strict=True))
    assert {field: found[name] for name, field in expected.items() if name in found} == {
        field: value for field, value in document.items() if field in expected.values() and field != "s"
    }
    assert (rescued is None) == (mode != "avro")
    if rescued is not None:
        assert json.loads(rescued) == {"a_b": {"type": "int", "value": {"$numberInt": "2"}}}


def test_a_column_keeps_its_field_after_new_fields_and_another_naming() -> None:
    avro = ColumnLimits(names="avro")
    shape = shape_of({"_id": 1, "a b": 1, "s": {"x y": 1}}, guards=avro)
    document = {"_id": 1, "a_b": "other", "a b": bson.Int64(2**40), "s": {"x-y": 1, "x y": 2, "z w": 1}, "c d": 1}
    later, changes = evolve(shape, CensusTaker(8).count(encoded(document)), ColumnLimits())
    assert names_of(later) == {"_id": "_id", "a_b": "a b", "s": "s", "c d": "c d"}
    assert names_of(later.fields["s"]) == {"x_y": "x y", "x-y": "x-y", "z w": "z w"}
    assert [change for change in changes if change.before] == [SchemaChange(("a_b",), "INT", "BIGINT")]
    assert with_columns_of(Shape("struct"), later)[0].fields["a_b"].source == "a b"
    values, rescued = Decoder(later).decode(encoded(document)[0])
    assert values == [1, 2**40, {"x-y": 1, "x_y": 2, "z w": 1}, 1]
    assert json.loads(rescued or "") == {"a_b": {"type": "string", "value": "other"}}


def column_types(shape: Shape) -> dict[str, str]:
    return {name: inner.spark_type() for name, inner in shape.columns()}


def long(number: int) -> bson.Int64:
    return bson.Int64(number)


# scenario: S02
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], "INT"),
        ([1, long(2)], "BIGINT"),
        ([1, 2.5], "DOUBLE"),
        ([long(1), 2.5], "VARIANT"),
        ([1, "a"], "VARIANT"),
        ([1, [1]], "VARIANT"),
        ([{"a": 1}, [1]], "VARIANT"),
        ([None, 1], "INT"),
        (["a"], "STRING"),
        ([True], "BOOLEAN"),
        ([bson.ObjectId()], "STRING"),
        ([bson.ObjectId(), "a"], "VARIANT"),
        ([datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)], "TIMESTAMP"),
        ([bson.Decimal128("1.25"), bson.Decimal128("100")], "DECIMAL(38,2)"),
        ([bson.Decimal128("1.25"), 7], "DECIMAL(38,2)"),
        ([bson.Decimal128("1" * 34), bson.Decimal128("1E-6")], "VARIANT"),
        ([bson.Decimal128("0.00")], "DECIMAL(38,2)"),
        ([bson.Decimal128("0.00"), bson.Decimal128("7"), 7], "DECIMAL(38,2)"),
        ([bson.Decimal128("0E-6176"), bson.Decimal128("1.5")], "DECIMAL(38,1)"),
        ([bson.Decimal128("0E+6111"), bson.Decimal128("1E+37")], "DECIMAL(38,0)"),
        ([bson.Decimal128("1" * 30 + ".0000"), bson.Decimal128("1" * 31 + "0E+6")], "DECIMAL(38,0)"),
        ([bson.Decimal128("NaN"), bson.Decimal128("1.5")], "DECIMAL(38,1)"),
        ([bson.Decimal128("-0.00"), 7], "INT"),
        ([bson.Decimal128("Infinity"), "text"], "VARIANT"),
        ([uuid.UUID(int=5)], "STRING"),
        ([b"bytes"], "BINARY"),
        ([bson.Binary(b"x", 6)], "VARIANT"),
        ([bson.Timestamp(1, 1)], "VARIANT"),
        ([bson.MinKey()], "VARIANT"),
        ([bson.Regex("a")], "VARIANT"),
        ([[1, 2], []], "ARRAY<INT>"),
        ([[1, "a"]], "ARRAY<VARIANT>"),
        ([[{"a": 1}, {"b": "x"}]], "ARRAY<STRUCT<`a`: INT, `b`: STRING>>"),
        ([{"a": {"b": [long(1)]}}], "STRUCT<`a`: STRUCT<`b`: ARRAY<BIGINT>>>"),
    ],
)
def test_the_narrowest_type_that_holds_every_value_is_inferred(values: list[Any], expected: str) -> None:
    shape = shape_of(*({"_id": number, "x": value} for number, value in enumerate(values)))
    assert column_types(shape)["x"] == expected


@pytest.mark.parametrize(
    "value", [None, [], {}, [None], [[]], {"a": None}, bson.Decimal128("NaN"), [bson.Decimal128("-0.00")]]
)
def test_an_empty_value_makes_no_column(value: Any) -> None:
    assert "x" not in column_types(shape_of({"_id": 1, "x": value}))


def test_an_id_of_mixed_types_is_json_because_a_variant_cannot_be_joined_on() -> None:
    assert column_types(shape_of({"_id": 1}, {"_id": "a"})) == {"_id": "STRING"}
    assert shape_of({"_id": 1}, {"_id": "a"}).fields["_id"].kind == "json"


def after(*generations: dict[str, Any]) -> tuple[Shape, list[SchemaChange]]:
    shape, changes = Shape("struct"), []
    for document in generations:
        shape, changes = evolve(shape, CensusTaker(8).count(encoded(document)), ColumnLimits())
    return shape, changes


@pytest.mark.parametrize(
    ("first", "then", "change"),
    [
        ({"x": 1}, {"x": long(1)}, SchemaChange(("x",), "INT", "BIGINT")),
        ({"x": 1}, {"x": 1.5}, SchemaChange(("x",), "INT", "DOUBLE")),
        ({"x": 1}, {"y": "a"}, SchemaChange(("y",), "", "STRING")),
        ({"x": {"a": 1}}, {"x": {"b": 1}}, SchemaChange(("x", "b"), "", "INT")),
        ({"x": [{"a": 1}]}, {"x": [{"b": "s"}]}, SchemaChange(("x", "element", "b"), "", "STRING")),
        ({"x": [1]}, {"x": [long(1)]}, SchemaChange(("x", "element"), "INT", "BIGINT")),
        ({"x": []}, {"x": [1]}, SchemaChange(("x",), "", "ARRAY<INT>")),
        ({"x": []}, {"x": {"a": 1}}, SchemaChange(("x",), "", "STRUCT<`a`: INT>")),
        ({"x": {}}, {"x": ["s"]}, SchemaChange(("x",), "", "ARRAY<STRING>")),
        ({"x": [{}]}, {"x": 1.5}, SchemaChange(("x",), "", "DOUBLE")),
        ({"x": {"a": 1, "b": {}}}, {"x": {"b": "s"}}, SchemaChange(("x", "b"), "", "STRING")),
        ({"x": None}, {"x": True}, SchemaChange(("x",), "", "BOOLEAN")),
        ({"x": {"a": 1, "b": []}}, {"x": {"b": ["s"]}}, SchemaChange(("x", "b"), "", "ARRAY<STRING>")),
    ],
)
def test_a_table_widens_by_itself(first: dict[str, Any], then: dict[str, Any], change: SchemaChange) -> None:
    assert after(first, then)[1] == [change]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"x": "a"}, {"x": 1}),
        ({"x": long(1)}, {"x": 1.5}),
        ({"x": {"a": 1}}, {"x": "s"}),
        ({"x": 1}, {"x": None}),
        ({"x": 1}, {"x": 2}),
    ],
)
def test_a_type_conflict_leaves_the_column_and_the_run_goes_on(first: dict[str, Any], then: dict[str, Any]) -> None:
    before, _ = after(first)
    shape, changes = after(first, then)
    assert (shape, changes) == (before, [])


# scenario: S06
def test_names_that_no_table_can_hold_have_no_column() -> None:
    shape = shape_of(
        {
            "_id": 1,
            "": 1,
            "new\nline": 1,
            "_key": 1,
            "_deleted": 1,
            "_Valid_TO": 1,
            "_Commit_version": 1,
            "_strandline_action": 1,
            "a": 1,
            "A": 1,
            "a.b": 1,
            "$set": 1,
            "emoji 🛫": 1,
            "x;drop": 1,
            "tick`": 1,
            "${env:HOME}": 1,
            "price_${currency}": 1,
        }
    )
    assert list(column_types(shape)) == ["_id", "a", "a.b", "$set", "emoji 🛫", "x;drop"]
    assert column_types(shape_of({"s": {"_key": 1, "b": 1, "B": 1}})) == {"s": "STRUCT<`_key`: INT, `b`: INT>"}


@pytest.mark.parametrize("twins", [("µ", "μ"), ("ı", "i"), ("İ", "i"), ("ſ", "S"), ("ς", "σ"), ("straße", "STRAßE")])
def test_names_that_spark_takes_for_one_are_one_column(twins: tuple[str, str]) -> None:
    assert list(column_types(shape_of(dict.fromkeys(twins, 1)))) == [twins[0]]
    assert fold_case("straße") != fold_case("strasse")


def test_guards_turn_an_explosion_of_names_and_depth_into_variant() -> None:
    guards = ColumnLimits(max_columns=3, max_depth=2)
    wide = {"_id": 1, "w": {f"k{n}": n for n in range(4)}, "d": {"a": {"b": {"c": 1}}}}
    assert column_types(shape_of(wide, guards=guards)) == {"_id": "INT", "w": "VARIANT", "d": "STRUCT<`a`: VARIANT>"}
    assert len(column_types(shape_of({f"k{n}": n for n in range(9)}, guards=guards))) == 3


def days(first: int, last: int) -> dict[str, Any]:
    """Document whose field names are data: a number for each hour of some days."""
    return {f"day_{day:03}": {f"h{hour:02}": day * hour for hour in range(24)} for day in range(first, last)}


def decoded(shape: Shape, document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    values, rescued = Decoder(shape).decode(encoded(document)[0])
    return dict(zip((name for name, _ in shape.columns()), values, strict=True)), json.loads(rescued or "{}")


def test_the_bound_is_on_leaf_columns_of_the_whole_table_and_maps_go_first() -> None:
    order = {
        "number": 1,
        "lines": [{"sku": "a", "amount": 2}],
        "address": {"street": "s", "town": {"name": "t", "zip": "z"}},
    }
    document = {"_id": 1, "order": order, "load": {"unit": "kW", "hours": days(0, 365)}}
    shape = shape_of(document)
    assert column_types(shape) == {
        "_id": "INT",
        "order": "STRUCT<`number`: INT, `lines`: ARRAY<STRUCT<`sku`: STRING, `amount`: INT>>,"
        " `address`: STRUCT<`street`: STRING, `town`: STRUCT<`name`: STRING, `zip`: STRING>>>",
        "load": "STRUCT<`unit`: STRING, `hours`: VARIANT>",
    }
    assert shape.leaves == 9
    values, rescued = decoded(shape, document)
    assert json.loads(values["load"]["hours"])["day_364"]["h23"] == {"$numberInt": str(364 * 23)}
    assert rescued == {}


@pytest.mark.parametrize(
    ("max_columns", "expected"),
    [
        (12, "STRUCT<`a`: INT, `b`: STRUCT<`c`: INT, `d`: INT, `deep`: STRUCT<`e`: INT, `f`: INT>>>"),
        (11, "STRUCT<`a`: INT, `b`: STRUCT<`c`: INT, `d`: INT, `deep`: VARIANT>>"),
        (10, "STRUCT<`a`: INT, `b`: VARIANT>"),
        (9, "STRUCT<`a`: INT, `b`: VARIANT>"),
        (8, "VARIANT"),
    ],
)
def test_the_deepest_documents_become_variant_first(max_columns: int, expected: str) -> None:
    nested = {"a": 1, "b": {"c": 1, "d": 1, "deep": {"e": 1, "f": 2}}}
    shape = shape_of(
        {"_id": 1, **{f"k{n}": n for n in range(6)}, "nested": nested}, guards=ColumnLimits(max_columns=max_columns)
    )
    types = column_types(shape)
    assert types.pop("nested", "") == expected
    assert shape.leaves <= max_columns


def test_a_document_that_has_columns_keeps_them_and_what_is_new_in_it_is_rescued_once_the_table_is_full() -> None:
    guards = ColumnLimits(max_columns=60)
    shape, _ = evolve(Shape("struct"), CensusTaker(8).count(encoded({"_id": 1, "h": days(0, 2)})), guards)
    before = column_types(shape)["h"]
    document = {"_id": 1, "h": days(0, 20), "paid": True, "by": "card", "at": "noon"}
    shape, changes = evolve(shape, CensusTaker(8).count(encoded(document)), guards)
    assert shape.leaves == 60
    assert [change.path for change in changes if change.path[0] != "h"] == [("paid",), ("by",), ("at",)]
    assert [(change.path, change.after) for change in changes if change.path[0] == "h"] == [
        (("h", f"day_{day:03}"), "VARIANT") for day in range(2, 10)
    ]
    assert column_types(shape)["h"].startswith(before[:-1])
    values, rescued = decoded(shape, document)
    assert {f"h.day_{day:03}" for day in range(10, 20)} == rescued.keys()
    assert values["h"]["day_001"] == days(1, 2)["day_001"]
    again = evolve(shape, CensusTaker(8).count(encoded({**document, "later": 1})), guards)
    assert again == (shape, []), "whatever comes, it is full"


def test_a_table_that_has_more_columns_than_the_bound_keeps_them_and_gets_no_more() -> None:
    shape = shape_of({"_id": 1, **{f"k{n}": n for n in range(20)}})
    census = CensusTaker(8).count(encoded({"_id": 1, "k0": long(2**40), "new": {"a": 1, "b": 1}}))
    after, changes = evolve(shape, census, ColumnLimits(max_columns=5))
    assert changes == [SchemaChange(("k0",), "INT", "BIGINT")]
    assert list(after.fields) == list(shape.fields)


def test_declared_columns_and_the_id_stay_under_every_column_limit() -> None:
    plan = ColumnPlan("infer", declared_columns({"z": {"a": "int", "b": "int", "c": "int"}}))
    census = CensusTaker(8).count(encoded({"_id": {"k": 1, "v": 2}, "a": 1, "z": {"a": 1, "d": 1}}))
    shape, _ = evolve(Shape("struct"), census, ColumnLimits(max_columns=4), plan)
    assert column_types(shape) == {"_id": "STRING", "z": "STRUCT<`a`: INT, `b`: INT, `c`: INT>"}
    assert shape.fields["_id"].kind == "json", "a VARIANT cannot be joined on"


_documents = st.lists(
    st.dictionaries(
        st.sampled_from("abc"),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=3)),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("xy"), inner, max_size=2)
            ),
            max_leaves=5,
        ),
        max_size=3,
    ),
    max_size=6,
)


@given(_documents, st.integers(0, 6))
def test_a_census_of_parts_is_the_census_of_the_whole_and_survives_its_journey(
    documents: list[dict[str, Any]], cut: int
) -> None:
    whole = CensusTaker(8).count(encoded(*documents))
    parts = CensusTaker(8).count(encoded(*documents[:cut]))
    parts.merge(Census.from_json(json.loads(json.dumps(CensusTaker(8).count(encoded(*documents[cut:])).to_json()))))
    assert parts == whole


@given(_documents)
def test_evolving_is_stable_and_the_shape_survives_its_journey(documents: list[dict[str, Any]]) -> None:
    census = CensusTaker(8).count(encoded(*documents))
    shape, _ = evolve(Shape("struct"), census, ColumnLimits())
    assert evolve(shape, census, ColumnLimits()) == (shape, [])
    assert Shape.from_json(json.loads(json.dumps(shape.to_json()))) == shape


@given(_documents, st.integers(1, 5), st.permutations(range(6)))
def test_the_bound_holds_for_any_batches_and_the_columns_of_one_batch_do_not_depend_on_its_order(
    documents: list[dict[str, Any]], size: int, order: list[int]
) -> None:
    guards, shape = ColumnLimits(max_columns=4), Shape("struct")
    for start in range(0, len(documents), size):
        census = CensusTaker(8).count(encoded(*documents[start : start + size]))
        shape, changes = evolve(shape, census, guards)
        assert shape.leaves <= 4
        assert all(not change.before or change.after in ("BIGINT", "DOUBLE") for change in changes)
        assert evolve(shape, census, guards) == (shape, [])
    shuffled = [documents[at] for at in order if at < len(documents)]
    whole, other = shape_of(*documents, guards=guards), shape_of(*shuffled, guards=guards)
    assert dict(whole.columns()) == dict(other.columns())


def test_columns_follow_another_tables_shape() -> None:
    own = Shape(
        "struct", fields={"a": Shape("int"), "old": Shape("string"), "s": Shape("struct", fields={"x": Shape("int")})}
    )
    other = Shape(
        "struct",
        fields={
            "a": Shape("long"),
            "s": Shape("struct", fields={"x": Shape("string"), "y": Shape("bool")}),
            "l": Shape("array", element=Shape("int")),
            "_valid_to": Shape("date"),
        },
    )
    shape, changes = with_columns_of(own, other)
    assert list(shape.fields) == ["a", "old", "s", "l"]
    assert shape.fields["s"].spark_type() == "STRUCT<`x`: INT, `y`: BOOLEAN>"
    assert [(change.path, change.before, change.after) for change in changes] == [
        (("a",), "INT", "BIGINT"),
        (("s", "y"), "", "BOOLEAN"),
        (("l",), "", "ARRAY<INT>"),
    ]
    assert with_columns_of(shape, other) == (shape, [])


def test_a_column_that_another_table_spells_otherwise_is_left_out() -> None:
    own = Shape("struct", fields={"orderid": Shape("string"), "s": Shape("struct", fields={"ID": Shape("long")})})
    twins = {"orderId": Shape("string"), "s": Shape("struct", fields={"id": Shape("long"), "n": Shape("long")})}
    shape, changes = with_columns_of(own, Shape("struct", fields=twins))
    assert [change.path for change in changes] == [("s", "n")]
    assert list(shape.fields) == ["orderid", "s"]
    assert with_columns_of(shape, Shape("struct", fields=twins)) == (shape, [])


def test_a_field_that_has_a_column_of_an_adjusted_name_gets_no_second_one() -> None:
    shape = Shape("struct", fields={"_id": Shape("long"), "unit_price": replace(Shape("string"), source="unit price")})
    with pytest.raises(ValueError, match="column unit_price holds the field unit price"):
        planned(ColumnPlan("infer", declared_columns({"unit price": "string"})), {"_id": 1}, shape=shape)


def planned(
    plan: ColumnPlan, *documents: dict[str, Any], shape: Shape | None = None
) -> tuple[Shape, list[SchemaChange]]:
    return evolve(shape or Shape("struct"), CensusTaker(8).count(encoded(*documents)), ColumnLimits(), plan)


# scenario: S01, T03
def test_a_declared_column_keeps_its_type_for_every_value() -> None:
    said = {"total": "decimal(2)", "lines": [{"sku": "string", "qty": "long"}], "later": "date", "any": "variant"}
    plan = ColumnPlan("infer", declared_columns(said))
    shape, changes = planned(
        plan, {"_id": 1, "total": "free", "lines": [{"sku": 1, "more": 2}], "seen": True, "Later": 1}
    )
    assert column_types(shape) == {
        "_id": "INT",
        "total": "DECIMAL(38,2)",
        "lines": "ARRAY<STRUCT<`sku`: STRING, `qty`: BIGINT>>",
        "later": "TIMESTAMP",
        "any": "VARIANT",
        "seen": "BOOLEAN",
    }
    assert [change.path for change in changes] == [("_id",), ("total",), ("lines",), ("later",), ("any",), ("seen",)]
    assert planned(plan, {"_id": 1, "total": long(5), "lines": {"now": "a document"}}, shape=shape) == (shape, [])


def test_in_mode_declared_nothing_else_becomes_a_column_but_the_id() -> None:
    shape, _ = planned(ColumnPlan("declared", declared_columns({"a": "string"})), {"_id": 1, "a": 1, "b": 2})
    assert column_types(shape) == {"_id": "INT", "a": "STRING"}
    shape, _ = planned(ColumnPlan("declared"), {"_id": 1, "b": 2})
    assert column_types(shape) == {"_id": "INT", "b": "INT"}, "where nothing is declared, the documents decide"


def test_in_mode_variant_the_document_is_one_column() -> None:
    shape, changes = planned(ColumnPlan("variant"), {"_id": 1, "a": 1, "document": 2})
    assert column_types(shape) == {"_id": "INT", "document": "VARIANT"}
    assert planned(ColumnPlan("variant"), {"_id": long(2), "b": 1}, shape=shape)[1] == [
        SchemaChange(("_id",), "INT", "BIGINT")
    ]
    assert [change.path for change in changes] == [("_id",), ("document",)]
    values, rescued = Decoder(shape).decode(raw := encoded({"_id": 7, "a": [1.5], "document": "of its own"})[0])
    assert (values[0], json.loads(values[1]), rescued) == (7, json.loads(rb.canonical_json(raw)), None)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (
            ColumnPlan(),
            ColumnPlan("infer", declared_columns({"a": "string"})),
            "column a is INT, and silver.columns says a STRING",
        ),
        (
            ColumnPlan(),
            ColumnPlan("infer", declared_columns({"A": "int"})),
            "column a is INT, and silver.columns says A INT",
        ),
        (ColumnPlan(), ColumnPlan("variant"), "another silver.schema_mode"),
        (ColumnPlan("variant"), ColumnPlan(), "another silver.schema_mode"),
    ],
)
def test_a_table_of_other_types_is_not_bent(before: ColumnPlan, after: ColumnPlan, why: str) -> None:
    shape, _ = planned(before, {"_id": 1, "a": 1})
    with pytest.raises(ValueError, match=re.escape(why)):
        planned(after, {"_id": 2, "a": 1}, shape=shape)


def test_a_declaration_widens_a_column_where_delta_can() -> None:
    shape, _ = planned(ColumnPlan(), {"_id": 1, "a": 1})
    wider, changes = planned(ColumnPlan("infer", declared_columns({"a": "long"})), {"_id": 1, "a": 1}, shape=shape)
    assert (column_types(wider)["a"], changes) == ("BIGINT", [SchemaChange(("a",), "INT", "BIGINT")])


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"a": "money"}, "a is no type: binary, bool"),
        ({"a": "decimal(39)"}, "a is no type"),
        ({"a": "whole"}, "a is no type"),
        ({"a": {"b": [{"c": 1}]}}, "a.b.c is no type"),
        ({"a": []}, "a is no type"),
        ({"a": {}}, "a is no type"),
        ({"_key": "string"}, "_key cannot be a column"),
        ({"a": {"x`y": "int"}}, "x`y cannot be a column"),
        ({"a": "int", "A": "int"}, "a and A differ in case alone"),
    ],
)
def test_an_invalid_declaration_names_its_problem(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        declared_columns(said)
