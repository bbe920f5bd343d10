"""Child tables: exploding the parent gives the child, after each of several batches, and nothing else is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_refused import refuse_spark

from strandline.errors import ContractError
from strandline.io.delta_log import mergeable_table
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.lake_context import LazyContext
from strandline.jobs.silver.children import ChildRun, children_of, children_of_cut
from strandline.model.child_table import Child, Elements
from strandline.model.merge_rule import MergeRule
from strandline.model.namespaces import Namespace
from strandline.model.shape import DECLARABLE, Shape, declared_columns
from strandline.model.tables import Lake, TableName
from strandline.settings.configuration import Settings
from strandline.silver import batch_rows
from strandline.silver.child_table import reached_property
from strandline.silver.decode.numpy_scalars import arrow_type
from strandline.silver.decode.rows import decoding
from strandline.silver.elements import exploded
from strandline.silver.owned_table import shape_properties
from strandline.silver.schema.census import CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, ColumnPlan, evolve
from strandline.silver.silver_metadata import SilverMetadata

_ORDERS, _LINES = TableName("silver", "orders"), TableName("silver", "order_lines")
_SHOP = Namespace("shop", "orders")
_SHAPE = Shape("struct", fields=declared_columns({"lines": [{"sku": "string", "n": "long"}], "tags": ["string"]}))
Line = dict[str, Any] | None
Row = dict[str, Any]


class Parent:
    """A parent table in a folder, and what its child must be."""

    def __init__(self, root: Path | str, key: str | None = None, *, path: str = "lines", shape: Shape = _SHAPE) -> None:
        child = {"table": "order_lines", **({"key": key} if key else {})}
        chosen: dict[str, Any] = {"naming": "collection", "children": {"shop.orders": {path: child}}}
        self.settings = Settings(source={"name": "test"}, lake={"root": str(root)}, silver=chosen)  # type: ignore[arg-type]  # why: pydantic builds the sections
        self.tables = DeltaRsTables(Lake(str(root)))
        self.ctx = LazyContext(self.settings, self.tables, refuse_spark)
        SilverMetadata(self.tables, _ORDERS).open("shop.orders", "test")
        columns = pa.schema([(name, arrow_type(kind)) for name, kind in shape.fields.items()])
        assert self._newest().add_columns(columns, shape_properties(shape))
        self.number = 0

    def _newest(self) -> MergeableTable:
        table = MergeableTable.open(self.tables.folder(_ORDERS), key="_key")
        assert table is not None
        return table

    @property
    def position(self) -> str:
        return f"{self.number:016x}"

    def write(self, changes: Mapping[str, tuple[Any, bool]], *, column: str = "lines") -> None:
        """Merge the arrays of some keys, each with its tombstone."""
        self.number += 1
        at = datetime.fromtimestamp(self.number, UTC)
        table = self._newest()
        rows = [
            {"_key": key, "_position": self.position, "_deleted": gone, "_cluster_time": at, column: lines}
            for key, (lines, gone) in changes.items()
        ]
        source = table.conformed(
            pa.Table.from_pylist(rows, pa.schema([table.schema.field(n) for n in rows[0]])), rows[0]
        )
        rule = MergeRule(("_key",)).update(list(rows[0])).insert(list(rows[0]))
        assert table.merge(source, rule, table.files) is not None

    def run(self) -> int:
        (run,) = children_of(self.ctx, _SHOP, self.tables)
        return run.run().rows

    def child(self) -> list[Row]:
        rows: list[Row] = self.tables.folder(_LINES).table().to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["_key"], row["_ordinal"]))

    def feed(self, after: int) -> list[str]:
        """Return what the change feed tells after a version: kind, key, place and article."""
        rows = pa.table(self.tables.folder(_LINES).table().load_cdf(starting_version=after + 1)).to_pylist()
        changes = [row for row in rows if row["_change_type"] != "update_preimage"]
        return sorted(f"{row['_change_type']} {row['_key']} {row['_ordinal']} {row['sku']}" for row in changes)


def expected(parents: dict[str, tuple[list[Line] | None, bool]], key: str | None) -> dict[tuple[Any, ...], Row]:
    """Return the elements of the parents, by what identifies them."""
    rows = {}
    for name, (lines, gone) in parents.items():
        seen: Counter[Any] = Counter()
        for place, line in enumerate(lines or []):
            values = {"_key": name, "_ordinal": place, **(line or {"sku": None, "n": None}), "_deleted": gone}
            identity: tuple[Any, ...] = (name, place)
            if key is not None:
                identity = (name, values[key], seen[values[key]])
                values["_occurrence"] = seen[values[key]]
                seen[values[key]] += 1
            rows[identity] = values
    return rows


_lines = st.one_of(
    st.none(),
    st.lists(
        st.one_of(
            st.none(),
            st.fixed_dictionaries({"sku": st.sampled_from([None, "", "a", "b", "c"]), "n": st.integers(0, 2)}),
        ),
        max_size=5,
    ),
)
_batches = st.lists(
    st.dictionaries(st.sampled_from("abcde"), st.tuples(_lines, st.booleans()), min_size=1), min_size=1, max_size=4
)


# promise 2
@pytest.mark.parametrize("key", [None, "sku"])
@settings(max_examples=10, deadline=None)
@given(batches=_batches)
def test_after_each_batch_the_child_is_the_exploded_parent(
    key: str | None, batches: list[dict[str, tuple[list[Line] | None, bool]]]
) -> None:
    """An element keeps its position until it changes. Other elements are not written."""
    parents: dict[str, tuple[list[Line] | None, bool]] = {}
    rows: dict[tuple[Any, ...], Row] = {}
    with TemporaryDirectory() as root:
        parent = Parent(root, key)
        for batch in batches:
            parents |= batch
            parent.write(batch)
            before, rows = rows, expected(parents, key)
            changed = 0
            for identity, row in rows.items():
                old = before.get(identity)
                is_same = old is not None and {**row, "_position": 0} == {**old, "_position": 0}
                row["_position"] = old["_position"] if old is not None and is_same else parent.position
                changed += not is_same
            assert parent.run() == changed + len(before.keys() - rows.keys())
            assert [{**row, "_cluster_time": None} for row in parent.child()] == [
                {**row, "_cluster_time": None}
                for row in sorted(rows.values(), key=lambda row: (row["_key"], row["_ordinal"]))
            ]
            assert parent.run() == 0
            assert children_of_cut(parent.ctx, {str(_ORDERS): parent.tables.version(_ORDERS)}) != {}


_INNER = {"n": "long", "tax": {"of": [{"c": "string"}]}}
_NESTED = Shape("struct", fields=declared_columns({"cart": {"lines": [_INNER]}}))
_tax = st.one_of(st.none(), st.fixed_dictionaries({"c": st.sampled_from("ab")}))
_taxes = st.fixed_dictionaries({"of": st.one_of(st.none(), st.lists(_tax, max_size=3))})
_outer = st.one_of(st.none(), st.fixed_dictionaries({"n": st.integers(0, 2), "tax": _taxes}))
_carts = st.one_of(st.none(), st.fixed_dictionaries({"lines": st.one_of(st.none(), st.lists(_outer, max_size=3))}))


# promise 2
@pytest.mark.parametrize("key", [None, "c"])
@settings(max_examples=5, deadline=None)
@given(batches=st.lists(st.dictionaries(st.sampled_from("abc"), _carts, min_size=1), min_size=1, max_size=3))
def test_an_array_in_an_array_gives_a_row_for_each_inner_element(
    key: str | None, batches: list[dict[str, Any]]
) -> None:
    """Elements of equal arrays are not written again."""
    parents: dict[str, Any] = {}
    rows: dict[tuple[Any, ...], Row] = {}
    with TemporaryDirectory() as root:
        parent = Parent(root, key, path="cart.lines.tax.of", shape=_NESTED)
        for batch in batches:
            parents |= batch
            parent.write({name: (cart, False) for name, cart in batch.items()}, column="cart")
            before, rows = rows, _inner_elements(parents, key)
            changed = sum(before.get(identity) != row for identity, row in rows.items())
            assert parent.run() == changed + len(before.keys() - rows.keys())
            columns = ("_key", "_outer_ordinal", "_ordinal", "c", *(("_occurrence",) if key else ()))
            found = [{name: row[name] for name in columns} for row in parent.child()]
            assert sorted(map(repr, found)) == sorted(map(repr, rows.values()))


def _inner_elements(parents: dict[str, Any], key: str | None) -> dict[tuple[Any, ...], Row]:
    rows = {}
    for name, cart in parents.items():
        for outer, line in enumerate((cart or {}).get("lines") or []):
            seen: Counter[Any] = Counter()
            for place, tax in enumerate((line or {"tax": {"of": None}})["tax"]["of"] or []):
                code = (tax or {"c": None})["c"]
                row: Row = {"_key": name, "_outer_ordinal": outer, "_ordinal": place, "c": code}
                row |= {"_occurrence": seen[code]} if key else {}
                rows[(name, outer, code, seen[code]) if key else (name, outer, place)] = row
                seen[code] += 1
    return rows


def lines_of(text: str) -> list[Line]:
    return [{"sku": sku, "n": int(n)} for sku, n in text.split()]


# promise 2
def test_the_change_feed_tells_new_moved_changed_and_removed_elements_apart(tmp_path: Path) -> None:
    parent = Parent(tmp_path, "sku")
    parent.write({"1": (lines_of("a1 b1 c1 d1"), False), "2": (lines_of("a1"), False)})
    parent.run()
    version = parent.tables.version(_LINES)
    parent.write({"1": (lines_of("a1 c1 b2 e1"), False), "2": (lines_of("a1"), False)})
    assert parent.run() == 4
    assert parent.feed(version) == [
        "delete 1 3 d",
        "insert 1 3 e",
        "update_postimage 1 1 c",
        "update_postimage 1 2 b",
    ]


# promise 2
def test_a_large_child_is_merged_in_groups_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parents are new before, between and behind the keys that the files have."""
    parent = Parent(tmp_path, "sku")
    for key in "bdfh":
        parent.write({key: (lines_of("a1 b1"), False), f"{key}2": (lines_of("a1"), False)})
    monkeypatch.setattr(batch_rows, "_GROUP", 1)
    monkeypatch.setattr(mergeable_table, "_FILE_BYTES", 1)
    assert parent.run() == 12
    monkeypatch.setattr(mergeable_table, "GROUP_BYTES", 1)
    files, version = parent.tables.folder(_LINES).table().file_uris(), parent.tables.version(_LINES)
    assert len(files) == 4
    parents = {key: (lines_of("b1 a1"), key == "d") for key in ("a", "b", "c", "d", "e", "h", "h3")}
    parent.write(parents)
    assert parent.run() == 14
    assert len(set(files) & set(parent.tables.folder(_LINES).table().file_uris())) == 1, "f has no change"
    rows = {key: [(row["sku"], row["_deleted"]) for row in parent.child() if row["_key"] == key] for key in parents}
    assert rows == {key: [("b", deleted), ("a", deleted)] for key, (_, deleted) in parents.items()}
    kinds = Counter(line.split()[0] for line in parent.feed(version))
    assert kinds == {"insert": 8, "update_postimage": 6}


# promise 2
def test_a_child_that_is_behind_its_parent_is_in_no_cut_until_the_next_run(tmp_path: Path) -> None:
    parent = Parent(tmp_path)
    parent.write({"1": (lines_of("a1"), False)})
    (run,) = children_of(parent.ctx, _SHOP, parent.tables)
    assert run.is_behind()
    parent.run()
    version = parent.tables.version(_ORDERS)
    assert children_of_cut(parent.ctx, {str(_ORDERS): version}) == {str(_LINES): parent.tables.version(_LINES)}
    assert not run.is_behind()
    parent.write({"1": (lines_of("b1"), False)})
    newest = parent.tables.version(_ORDERS)
    assert run.is_behind()
    assert children_of_cut(parent.ctx, {str(_ORDERS): newest}) == {}
    parent.run()
    assert children_of_cut(parent.ctx, {str(_ORDERS): version}) == {}, "an older version of the parent"
    assert children_of_cut(parent.ctx, {str(_ORDERS): newest}) != {}


def test_a_table_of_another_array_is_not_taken(tmp_path: Path) -> None:
    parent = Parent(tmp_path)
    parent.write({"1": (lines_of("a1"), False)})
    parent.run()
    other = ChildRun(parent.ctx, _SHOP, Child(("tags",), _LINES, None), parent.tables)
    parent.write({"2": (None, False)})
    shape = replace(_SHAPE, fields={"tags": Shape("array", element=Shape("string"))})
    parent.tables.set_properties(_ORDERS, shape_properties(shape))
    with pytest.raises(ContractError, match=r"holds the elements of lines in shop\.orders"):
        other.run()


@pytest.mark.parametrize(
    ("path", "key", "problem"),
    [
        ("lines.sku", None, "lines.sku is STRING, and no array"),
        ("tags.a", None, "an element of tags is STRING, and no document"),
        ("n.a", None, "n is BIGINT, and no document"),
        ("deep.in.of", None, "deep.in is the second array on the path, after deep"),
        ("n", None, "n is BIGINT, and no array"),
        ("mixed", None, "mixed is STRING, and no array"),
        ("tags", "sku", "its elements are STRING, and have no field sku"),
        ("lines", "weight", "its key weight is DOUBLE"),
    ],
)
def test_a_path_that_is_no_array_and_a_key_that_identifies_nothing_are_refused(
    path: str, key: str | None, problem: str
) -> None:
    fields = {"lines": [{"sku": "string", "weight": "double"}], "n": "long", "tags": ["string"], "mixed": "json"}
    shape = Shape("struct", fields=declared_columns(fields | {"deep": [{"in": [{"of": ["long"]}]}]}))
    with pytest.raises(ValueError, match=problem):
        Elements.of(shape, Child(tuple(path.split(".")), _LINES, key), "portable")


@pytest.mark.parametrize(("path", "key"), [("lanes", None), ("empty", None), ("lines", "absent")])
def test_an_array_that_no_document_has_yet_gives_no_table(path: str, key: str | None) -> None:
    shape = replace(_SHAPE, fields={**_SHAPE.fields, "empty": Shape("array", element=Shape())})
    assert Elements.of(shape, Child((path,), _LINES, key), "portable") is None


def test_fields_with_names_of_the_tables_own_columns_get_another_name() -> None:
    fields = {"_key": "long", "_deleted": "bool", "element_key": "long", "_ORDINAL": "long", "_id": "string"}
    inner = Shape("struct", fields={name: Shape(kind) for name, kind in fields.items()})
    shape = Shape("struct", fields={"lines": Shape("array", element=inner)})
    elements = Elements.of(shape, Child(("lines",), _LINES, "_key"), "portable")
    assert elements is not None
    assert elements.fields == {
        "element_element_key": "_key",
        "element_deleted": "_deleted",
        "element_key": "element_key",
        "element_ORDINAL": "_ORDINAL",
        "_id": "_id",
    }
    assert elements.identity == ("_key", "element_element_key", "_occurrence")


def test_the_columns_of_elements_have_the_types_that_the_parents_have(tmp_path: Path) -> None:
    kinds = DECLARABLE - {"variant"}
    fields = {f"{kind}-ä.'x'": kind for kind in sorted(kinds)} | {"decimal": "decimal(2)", "list": [{"a-b": ["date"]}]}
    shape = Shape("struct", fields=declared_columns({"lines": [fields]})).as_in("portable")
    elements = Elements.of(shape, Child(("lines",), _LINES, None), "portable")
    assert elements is not None
    tables = DeltaRsTables(Lake(str(tmp_path)))
    tables.create_table(_LINES, elements.ddl)
    table = MergeableTable.open(tables.folder(_LINES), key="_key")
    assert table is not None
    assert {name: table.schema.field(name).type for name in elements.types} == {
        name: arrow_type(kind) for name, kind in elements.types.items()
    }


# promise 2
def test_a_child_that_does_not_know_its_version_is_compared_as_a_whole(tmp_path: Path) -> None:
    """As after a kill, a rebuild of the parent, or when the parent's log has ended."""
    parent = Parent(tmp_path, "sku")
    parent.write({"1": (lines_of("a1 b1"), False), "2": (lines_of("a1"), False), "3": (lines_of("c1"), False)})
    parent.run()
    parent.write({"1": (lines_of("b1"), False), "3": (None, False)})
    parent.tables.set_properties(_LINES, reached_property(None))
    version = parent.tables.version(_LINES)
    assert parent.run() == 3
    assert parent.feed(version) == ["delete 1 0 a", "delete 3 0 c", "update_postimage 1 0 b"]


_CARTS = (
    {"_id": 1, "cart": {"lines": [{"sku": "a", "taxes": [{"c": 1}, {"c": 2.5}]}, {"sku": "b"}, None]}},
    {"_id": 2, "cart": {"lines": [{"sku": "a", "taxes": [{"c": 3}, "x"]}]}, "note": "n"},
    {"_id": 3, "cart": {"lines": 5}},
    {"_id": 4},
)


@pytest.mark.parametrize("count", [1, 10], ids=["one by one", "decoded together"])
@pytest.mark.parametrize("path", ["cart.lines", "cart.lines.taxes"])
@pytest.mark.parametrize("left_out", [["cart.lines"], ["cart.lines.taxes"], ["cart.lines", "cart.lines.taxes"]])
def test_an_array_without_a_column_has_the_elements_that_its_column_would_give(
    left_out: list[str], path: str, count: int
) -> None:
    """An inner array may have a child although the outer one has no column, and the other way round."""
    documents = [bson.encode(document) for document in _CARTS * count]
    census = CensusTaker(8).count([bson.encode(_CARTS[0])])
    kept = ColumnLimits(compatibility="portable")
    (whole, _), (shape, changes) = (
        evolve(Shape("struct"), census, kept, ColumnPlan(left_out=frozenset(tuple(one.split(".")) for one in paths)))
        for paths in ([], left_out)
    )
    assert Shape.from_json(shape.to_json()).to_json() == shape.to_json()
    assert {change.path: change.is_kept for change in changes} == {
        ("_id",): True,
        ("cart",): "cart.lines" not in left_out,
    }
    batches = [rows_of(documents, one) for one in (whole, shape)]
    by_column, by_document = (
        exploded(rows, elements)
        for rows, one in zip(batches, (whole, shape), strict=True)
        for elements in [Elements.of(one, Child(tuple(path.split(".")), _LINES, None), "portable")]
        if elements is not None
    )
    assert by_document.to_pylist() == by_column.select(by_document.schema.names).to_pylist()
    assert ("taxes" in by_document.schema.names) == (path == "cart.lines" and "cart.lines.taxes" not in left_out)
    assert batches[0]["_rescued"].to_pylist() == batches[1]["_rescued"].to_pylist()


@pytest.mark.parametrize("path", [("cart", "lines"), ("cart", "lines", "taxes")])
def test_a_column_with_a_child_is_an_array_if_one_document_has_an_array(path: tuple[str, ...]) -> None:
    """Values of other types are rescued, whether they come before the array, with it, or after it."""
    others = [{"cart": {"lines": 5}}, {"cart": "none"}, {"cart": {"lines": [{"taxes": "free"}, 7]}}]
    documents = [bson.encode(document) for document in (*others, *_CARTS)]
    plan = ColumnPlan(arrays=frozenset({path}))
    shape, _ = evolve(Shape("struct"), CensusTaker(8).count(documents), ColumnLimits(compatibility="portable"), plan)
    elements = Elements.of(shape, Child(path, _LINES, None), "portable")
    assert elements is not None
    rows = rows_of(documents, shape)
    assert exploded(rows, elements).num_rows == (6 if path == ("cart", "lines") else 4)
    rescued = [text and sorted(json.loads(text)) for text in rows["_rescued"].to_pylist()]
    assert rescued[:2] == [["cart.lines"], ["cart"]]


def rows_of(documents: list[bytes], shape: Shape) -> pa.Table:
    count = len(documents)
    columns: dict[str, Any] = {"base_op": ["r"] * count, "envelope": documents, "_key": [str(n) for n in range(count)]}
    columns |= {"_position": [""] * count, "_deleted": [False] * count}
    columns["_cluster_time"] = pa.nulls(count, pa.timestamp("us", tz="UTC"))
    batches = pa.table(columns).to_batches()
    return pa.Table.from_batches(decoding(shape, ("_key", "_position", "_deleted", "_cluster_time"))(iter(batches)))
