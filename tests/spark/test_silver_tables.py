"""Table names of collections, and collections that would share a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.silver.table_names import name_conflicts, table_of
from strandline.model.namespaces import Namespace
from strandline.model.tables import TableName
from strandline.settings.configuration import Settings
from strandline.silver.silver_table import SilverTable

ONE, OTHER = Namespace("one", "orders"), Namespace("other", "orders")


def context(tables: Tables, scope: str, naming: str | None = None) -> JobContext:
    sections: dict[str, Any] = {
        "capture": {"scope": scope, "target": None if scope == "deployment" else "one"},
        "source": {"name": "test"},
    }
    return JobContext(Settings(**sections, silver={"naming": naming} if naming else {}), tables.spark, tables)


def names(ctx: JobContext) -> list[str]:
    return [table_of(ctx, namespace).name for namespace in (ONE, OTHER)]


def test_a_source_of_several_databases_has_tables_that_do_not_collide(tables: Tables) -> None:
    assert names(context(tables, "deployment")) == ["one__orders", "other__orders"]
    assert names(context(tables, "database")) == ["orders", "orders"]
    assert names(context(tables, "deployment", "collection")) == ["orders", "orders"]
    assert names(context(tables, "database", "database_collection")) == ["one__orders", "other__orders"]


@pytest.mark.parametrize("scope", ["deployment", "database"])
def test_a_table_that_holds_the_collection_keeps_its_name(tables: Tables, scope: str) -> None:
    ctx = context(tables, scope)
    for name in ("orders", "one__orders"):
        table = SilverTable(
            replace(tables, lake=replace(tables.lake, root=f"{tables.lake.root}/{name}")), TableName("silver", name)
        )
        table.open(str(ONE), "test")
        assert table_of(replace(ctx, tables=table.tables), ONE) == table.name
        another = table_of(replace(ctx, tables=table.tables), OTHER)
        assert another.name == ("other__orders" if scope == "deployment" else "orders")
        assert table_of(
            replace(ctx, tables=table.tables, settings=ctx.settings.model_copy(update=_another_source())), ONE
        ) == table_of(ctx, ONE), "another source's table"


def _another_source() -> dict[str, Any]:
    return {"source": Settings(source={"name": "another"}).source}  # type: ignore[arg-type]  # why: pydantic builds the section


def test_only_collections_that_would_share_a_table_are_in_conflict(tables: Tables) -> None:
    ctx, alone = context(tables, "deployment", "collection"), Namespace("one", "alone")
    found = name_conflicts(ctx, [alone, ONE, OTHER])
    assert set(found) == {ONE, OTHER}
    assert "one.orders and other.orders would share silver.orders" in str(found[ONE])
    SilverTable(tables, TableName("silver", "orders")).open(str(OTHER), "test")
    assert set(name_conflicts(ctx, [alone, ONE, OTHER])) == {ONE}, "the table goes on for the collection that has it"
    assert name_conflicts(context(tables, "deployment"), [alone, ONE, OTHER]) == {}
