"""Keys, columns and settings of tenant tables."""

from __future__ import annotations

from typing import Any

import bson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import ConfigurationError
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.model.tenants import bare_key, group_columns, key_prefix, tenant_of
from strandline.settings.silver import SilverSettings
from strandline.silver.decode.rows import decoding
from strandline.silver.incarnations import Incarnations, fact_properties, facts_in
from strandline.silver.schema.census import Census
from strandline.silver.schema.evolution import ColumnLimits, ColumnPlan, evolve
from strandline.silver.small_batch import BATCH, changes_of

_PATTERN = r"tenant_(?P<tenant>.*)\.orders"
_DATABASES = st.text(st.characters(codec="utf-8", exclude_characters=".\0/"), min_size=1, max_size=4)
_COLLECTIONS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4)
_NAMES = st.builds(Namespace, _DATABASES, _COLLECTIONS)
_KEYS = st.text(st.characters(codec="utf-8"), max_size=4)


@given(_NAMES, _NAMES, _KEYS, _KEYS)
def test_keys_of_two_tenants_are_never_equal_and_tell_their_tenant(
    one: Namespace, other: Namespace, key: str, other_key: str
) -> None:
    text = key_prefix(one) + key
    assert (tenant_of(text), bare_key(text)) == (one, key)
    assert (text == key_prefix(other) + other_key) == ((one, key) == (other, other_key))
    assert text.startswith(key_prefix(other)) == (one == other)


@given(st.lists(st.tuples(_NAMES, st.none() | _KEYS), min_size=1, max_size=5))
def test_a_batch_has_the_keys_of_its_tenants(rows: list[tuple[Namespace, str | None]]) -> None:
    bronze = [{"db": name.db, "collection": name.collection, "key": key, "op": "c"} for name, key in rows]
    table = pa.Table.from_pylist(bronze, BATCH).append_column("_commit_version", pa.array([1] * len(rows), pa.int64()))
    changes = changes_of(table, [name for name, _ in rows], 0, exact_updates=True, are_tenants=True)
    assert changes["key"].to_pylist() == [key_prefix(name) + (key or "") for name, key in rows]


def test_a_group_is_a_column_and_wins_over_a_field_of_its_name() -> None:
    census = Census({"struct"}, fields={name: Census({"string"}) for name in ("_id", "tenant", "n")})
    limits, plan = ColumnLimits(compatibility="portable"), ColumnPlan(groups=group_columns(_PATTERN))
    shape, changes = evolve(Shape("struct"), census, limits, plan)
    assert [change.path for change in changes] == [("_id",), ("tenant",), ("n",)]
    assert evolve(shape, census, limits, plan) == (shape, [])
    assert Shape.from_json(shape.to_json()) == shape
    documents = [bson.encode({"_id": "1", "tenant": "not this", "n": "x"}), None]
    keys = [key_prefix(Namespace(f"tenant_{name}", "orders")) + "1" for name in ("a", "c")]
    batch = pa.RecordBatch.from_pydict(
        {"base_op": ["r", "r"], "envelope": pa.array(documents, pa.binary()), "_key": keys}
    )
    (rows,) = decoding(shape, ["_key"])(iter([batch]))
    assert rows["tenant"].to_pylist() == ["a", "c"], "a deleted document has its tenant, too"
    assert [text is not None and "not this" in text for text in rows["_rescued"].to_pylist()] == [True, False]


def test_facts_of_tenants_are_stored_without_tokens() -> None:
    """A token has the `_id` of a document, which may be erased."""
    one, other, holder = Namespace("tenant_a", "orders"), Namespace("tenant_b", "o.r"), Namespace("", "orders")
    facts = {one: Incarnations(seen={"u1": "0" * 16 + ":82AB"}), other: Incarnations()}
    properties = fact_properties(facts, holder)
    assert facts_in(properties, holder) == {one: Incarnations(seen={"u1": "0" * 16 + ":"}), other: Incarnations()}
    assert facts_in({}, holder) == {}
    assert facts_in(fact_properties(facts, one), one) == {one: facts[one]}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tables": {"orders": {"from": "tenant_(.*"}}}, r"orders is no regular expression"),
        ({"tables": {"orders": {"from": r"t_(.*)\.orders"}}}, r"orders has a group without a name"),
        ({"tables": {"orders": {"from": r"t_(?P<_key>.*)\.orders"}}}, r"the group _key, which is a column of every"),
        ({"tables": {"orders": {"from": r"t_(?P<_id>.*)\.orders"}}}, r"the group _id, which is a column of every"),
        ({"tables": {"orders": {"from": r"(?P<A>.)(?P<a>.)\.orders"}}}, r"groups that differ in case alone"),
        ({"tables": {"Orders": {"from": r"t\.orders"}}}, r"'Orders' is no table name"),
        (
            {"tables": {"orders": {"from": _PATTERN}}, "columns": {"orders": {"tenant": "string"}}},
            r"the group tenant of orders is a column of silver\.columns",
        ),
        (
            {"tables": {"orders": {"from": _PATTERN}}, "children": {"orders": {"lines": {"table": "orders"}}}},
            r"orders\.lines claims the table orders of silver\.tables",
        ),
        ({"columns": {"orders": {"n": "long"}}}, r"'orders' is no database\.collection"),
    ],
)
def test_a_wrong_line_is_told_in_one_line(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        SilverSettings.model_validate(settings)


def test_settings_know_a_tenant_by_its_table() -> None:
    silver = SilverSettings.model_validate(
        {
            "tables": {"orders": {"from": _PATTERN}, "lines": {"from": r".*\.lines"}},
            "columns": {"orders": {"n": "long"}},
            "history": "scd2",
            "history_collections": ["orders"],
        }
    )
    assert silver.declared("tenant_a.orders") == {"n": Shape("long")}
    assert (silver.keeps_history("tenant_a.orders"), silver.keeps_history("a.lines")) == (True, False)
    assert (silver.named("orders"), silver.named("other.orders")) == ("orders", "other.orders")
    assert (silver.pattern_of("tenant_a.orders"), silver.pattern_of("other.orders")) == (_PATTERN, None)


def test_two_lines_that_claim_one_collection_are_refused() -> None:
    silver = SilverSettings.model_validate({"tables": {"a": {"from": r"t\.x"}, "b": {"from": r"t\..*"}}})
    with pytest.raises(ConfigurationError, match=r"a and b both claim the collection t\.x"):
        silver.named("t.x")
