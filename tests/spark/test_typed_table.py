"""Schema changes that were interrupted between the new columns and the stored shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pytest
from crashing import Crash, CrashingTables
from deltalake import DeltaTable

from strandline.errors import ContractError
from strandline.io.spark.races import OvertakenError
from strandline.io.tables.spark_tables import Tables
from strandline.model.shape import Compatibility, Shape
from strandline.model.tables import TableName
from strandline.silver.schema.census import CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, SchemaChange, evolve
from strandline.silver.silver_table import SilverTable
from strandline.silver.typed_table import TypedTable

FIRST = {"_id": 1, "n": 1, "s": {"x": 1}, "l": [{"x": 1}], "d": {"x": 1}, "same": True, "NAME": 1}
MEANWHILE = {
    "name": 1,
    "_id": 2,
    "n": 2**40,
    "s": {"x": 1, "y": "q"},
    "l": [{"x": 1.5, "y": 1}],
    "d": "text",
    "later": 1,
}
EMPTY = Shape("struct")


def asked_by(
    *documents: dict[str, Any], shape: Shape = EMPTY, kind: Compatibility = "portable"
) -> tuple[Shape, list[SchemaChange]]:
    return evolve(shape, CensusTaker(8).count(map(bson.encode, documents)), ColumnLimits(compatibility=kind))


def ending(tables: Tables) -> Tables:
    """Return tables of a process that crashes before the shape is stored."""
    return CrashingTables(tables.spark, tables.lake, {"left": 1, "after": 0}, of="silver.a")


# scenario: E03, S02
@pytest.mark.parametrize("kind", ["portable", pytest.param("native", marks=pytest.mark.long)])
def test_columns_that_a_run_left_behind_become_what_the_next_one_asks_for(tables: Tables, kind: Compatibility) -> None:
    table = SilverTable(tables, TableName("silver", "a"))
    table.open("shop.a", "test", kind)
    with pytest.raises(Crash):
        replace(table, tables=ending(tables)).change_schema(*asked_by(FIRST, kind=kind), before=EMPTY)
    left = dict(tables.read(table.name).dtypes)
    assert (left["n"], left["d"]) == (("int", "struct<x:int>") if kind == "native" else ("bigint", "struct<x:bigint>"))
    assert table.open("shop.a", "test").shape == EMPTY

    shape, changes = asked_by(MEANWHILE, FIRST, kind=kind)
    if kind == "portable":  # `n` is BIGINT either way; `d` cannot be dropped, and a rebuild makes the table anew
        with pytest.raises(
            ContractError, match=r"left the column .* in silver\.a with another type.*rebuild silver\.a"
        ):
            table.change_schema(shape, changes, before=EMPTY)
        assert table.open("shop.a", "test").shape == EMPTY
        return
    table.change_schema(shape, changes, before=EMPTY)
    rows = tables.read(table.name)
    types, whole = dict(rows.dtypes), "int" if kind == "native" else "bigint"
    assert {name: types[name] for name in ("n", "s", "l", "d", "same", "later", "name")} == {
        "n": "bigint",
        "s": f"struct<x:{whole},y:string>",
        "l": f"array<struct<x:double,y:{whole}>>",
        "d": "variant" if kind == "native" else "string",
        "same": "boolean",
        "later": whole,
        "name": whole,
    }
    assert table.open("shop.a", "test").shape == shape

    # a nested column, and a user's own column with values
    deeper, changes = asked_by({"l": [{"z": {"x": 1}}]}, shape=shape, kind=kind)
    with pytest.raises(Crash):
        replace(table, tables=ending(tables)).change_schema(deeper, changes, before=shape)
    stored, changes = asked_by({"l": [{"z": [1]}]}, shape=shape, kind=kind)
    table.change_schema(stored, changes, before=shape)
    assert dict(tables.read(table.name).dtypes)["l"] == f"array<struct<x:double,y:{whole},z:array<{whole}>>>"
    tables.spark.sql(f"ALTER TABLE {tables.lake.sql(table.name)} ADD COLUMNS (own STRING)")
    tables.spark.sql(f"INSERT INTO {tables.lake.sql(table.name)} (_key, own) VALUES ('1', 'mine')")
    with pytest.raises(
        ContractError, match=r"silver\.a has own as string, which was not made by strandline silver → rename the column"
    ):
        table.change_schema(*asked_by({"own": 1}, shape=stored, kind=kind), before=stored)
    assert tables.detail(table.name)["minReaderVersion"] == 3


# scenario: S07
def test_a_portable_table_has_column_mapping_only_if_a_name_needs_it(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    table = SilverTable(tables, TableName("silver", "a"))
    table.open("shop.a", "test")
    shape, changes = asked_by({"_id": 1, "a.b": 1, "ü": {"x": 1}, "l": [{"x": 1}]})
    table.change_schema(shape, changes, before=EMPTY)
    assert tables.detail(table.name)["minReaderVersion"] == 1
    following, changes = asked_by({"l": [{"unit price": 1}]}, shape=shape)
    table.change_schema(following, changes, before=shape)
    assert set(DeltaTable(tables.lake.path(table.name)).protocol().reader_features) == {"columnMapping", "timestampNtz"}
    assert tables.read(table.name).schema["l"].dataType.simpleString() == "array<struct<x:bigint,unit price:bigint>>"
    assert "silver.a has column mapping now" in caplog.text
    assert "'l.element.unit price'" in caplog.text
    copy = SilverTable(tables, TableName("silver", "copy"))
    copy.create_empty_copy(table, "shop.a")
    assert tables.read(copy.name).schema == tables.read(table.name).schema


# scenario: Q06, E03
def test_columns_that_another_run_has_changed_are_not_changed_by_what_was_known_before(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SilverTable(tables, TableName("silver", "a"))
    table.open("shop.a", "test")
    theirs, changes = asked_by({"_id": 1, "theirs": 1})
    table.change_schema(theirs, changes, before=EMPTY)
    with pytest.raises(OvertakenError, match=r"another run has changed the columns of silver\.a → strandline silver"):
        table.change_schema(*asked_by({"_id": 1, "theirs": "text"}), before=EMPTY)
    assert table.open("shop.a", "test").shape == theirs
    assert dict(tables.read(table.name).dtypes)["theirs"] == "bigint"

    without = TypedTable._missing_columns
    also, more = asked_by({"also": 1}, shape=theirs)

    def overtaken(self: TypedTable, added: list[SchemaChange]) -> list[SchemaChange]:
        """Store another shape while this run adds its columns."""
        monkeypatch.setattr(TypedTable, "_missing_columns", without)
        table.change_schema(also, more, before=theirs)
        return without(self, added)

    monkeypatch.setattr(TypedTable, "_missing_columns", overtaken)
    with pytest.raises(OvertakenError):
        table.change_schema(*asked_by({"own": 1}, shape=theirs), before=theirs)
    assert table.open("shop.a", "test").shape == also
