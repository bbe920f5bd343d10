"""Child tables over the whole way: capture, silver, cuts, kills, drops, new fields, rebuild and maintenance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import bson
import pytest
from lakehouse import pipeline, settings_for
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_refused import WITHOUT_SPARK, capture_without_spark, lake_without_spark

from strandline.control.sources import set_state
from strandline.errors import ConfigurationError
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.table_store import own_tables
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.gold.run_gold import run_gold
from strandline.jobs.lake_context import LazyContext
from strandline.jobs.maintenance.delete_source import delete_source
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.silver.children import ChildRun
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.query import Query
from strandline.model.table_schemas import CUTS
from strandline.model.tables import TableName, history_of
from strandline.settings.configuration import Settings
from strandline.settings.output import GoldSettings

Db = Database[dict[str, Any]]
pytestmark = WITHOUT_SPARK
_ORDERS, _LINES = TableName("silver", "orders"), TableName("silver", "order_lines")
_OWN = ("_occurrence", "_position", "_cluster_time")
"""Columns that the parent's array does not tell."""
_ARTICLES = """-- materialized: incremental
-- keys: sku
SELECT sku, count(*) AS articles FROM silver.order_lines WHERE NOT _deleted GROUP BY sku
"""


def with_children(settings: Settings, database: Db, *, keep: bool = True) -> Settings:
    """Return the settings with a child table of the lines of orders."""
    children = {f"{database.name}.orders": {"cart.lines": {"table": "order_lines", "key": "sku", "keep": keep}}}
    silver = settings.silver.model_validate({**settings.silver.model_dump(), "children": children})
    return settings.model_copy(update={"silver": silver})


@pytest.fixture
def ctx(mongo_uri: str, database: Db, tmp_path: Path, request: pytest.FixtureRequest) -> LazyContext:
    keep = getattr(request, "param", True)
    settings = with_children(settings_for(mongo_uri, database.name, tmp_path / "lake"), database, keep=keep)
    return lake_without_spark(settings)


def rows_at(ctx: LazyContext, table: TableName, version: int | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ctx.tables.folder(table).table(version).to_pyarrow_table().to_pylist()
    return rows


def fill(database: Db) -> None:
    database.orders.insert_many(
        [
            {"_id": number, "cart": {"lines": [{"sku": f"s{n}", "n": n} for n in range(number % 4)]}}
            for number in range(40)
        ]
    )
    database.orders.insert_many(
        [{"_id": 1000}, {"_id": 1001, "cart": {"lines": []}}, {"_id": 1003, "cart": {"lines": "none"}}]
    )
    database.other.insert_one({"_id": 1})


def change(database: Db) -> None:
    """Change, add, remove, move and repeat elements; delete, replace and insert documents."""
    database.orders.update_one({"_id": 3}, {"$set": {"cart.lines.1.n": 100}})
    database.orders.update_many({"_id": {"$in": [1, 2, 7]}}, {"$push": {"cart.lines": {"sku": "s0", "n": -1}}})
    database.orders.update_one({"_id": 11}, {"$pull": {"cart.lines": {"sku": "s0"}}})
    database.orders.update_one({"_id": 15}, {"$set": {"cart.lines": [{"sku": "s2", "n": 2}, None, {"n": 0}]}})
    database.orders.delete_many({"_id": {"$in": [19, 23]}})
    database.orders.replace_one({"_id": 27}, {"cart": {}})
    database.orders.insert_one({"_id": 100, "cart": {"lines": [{"sku": "new", "n": 1}]}})
    database.orders.update_one({"_id": 31}, {"$set": {"note": "no element changes"}})


def ids(ctx: LazyContext) -> dict[str, int]:
    """Return the `_id` of each document by its key."""
    return {row["_key"]: row["_id"] for row in rows_at(ctx, _ORDERS)}


def assert_equal_to_source(ctx: LazyContext, database: Db) -> None:
    """Compare the live elements with those that MongoDB itself unwinds."""
    stages = [{"$unwind": {"path": "$cart.lines", "includeArrayIndex": "place"}}]
    source = [
        (document["_id"], document["place"], *((line or {}).get(name) for name in ("sku", "n")))
        for document in database.orders.aggregate(stages)
        if document["place"] is not None
        for line in [document["cart"]["lines"]]
    ]
    keys = ids(ctx)
    rows = [row for row in rows_at(ctx, _LINES) if not row["_deleted"]]
    live = [(keys[row["_key"]], row["_ordinal"], row["sku"], row["n"]) for row in rows]
    assert sorted(map(repr, live)) == sorted(map(repr, source))


def assert_cuts_agree(ctx: LazyContext) -> None:
    """Explode the parent at each version that a cut names with the child, and compare it with the child's version."""
    cuts = ctx.tables.query(Query(CUTS).select("cut", "tables").order("cut"))
    versions = [{one["name"]: one["version"] for one in cut["tables"]} for cut in cuts]
    assert str(_LINES) in versions[-1]
    for of_cut in versions:
        if str(_LINES) in of_cut:
            assert_exploded(ctx, of_cut[str(_ORDERS)], of_cut[str(_LINES)])


def assert_exploded(ctx: LazyContext, parent: int, version: int) -> None:
    rows = rows_at(ctx, _LINES, version)
    child = [{name: value for name, value in row.items() if name not in _OWN} for row in rows]
    elements = [
        {**dict.fromkeys(child[0]), "_key": row["_key"], "_ordinal": place, **(line or {}), "_deleted": row["_deleted"]}
        for row in rows_at(ctx, _ORDERS, parent)
        for cart in [bson.decode(row["_document"]).get("cart")]
        for lines in [cart.get("lines") if isinstance(cart, dict) else None]
        for place, line in enumerate(lines if isinstance(lines, list) else [])
    ]
    assert sorted(map(_text, child)) == sorted(map(_text, elements))


def _text(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


# promise 2
@pytest.mark.parametrize("ctx", [True, False], indirect=True, ids=["with their column", "without"])
def test_elements_follow_their_documents_without_spark(ctx: LazyContext, database: Db) -> None:
    fill(database)
    capture_without_spark(ctx)
    elements = {result.table: result.elements for result in run_silver(ctx)}
    assert elements == {_ORDERS: 60, TableName("silver", "other"): 0}
    assert_equal_to_source(ctx, database)
    assert_cuts_agree(ctx)
    change(database)
    database.orders.insert_one({"_id": 1002, "cart": 5})
    capture_without_spark(ctx)
    before = ctx.tables.version(_LINES)
    run_silver(ctx)
    assert_equal_to_source(ctx, database)
    assert_cuts_agree(ctx)
    assert {ids(ctx)[row["_key"]] for row in rows_at(ctx, _LINES) if row["_deleted"]} == {19, 23}
    feed = ctx.tables.folder(_LINES).table().load_cdf(starting_version=before + 1, columns=["_key"]).read_all()
    assert 31 not in {ids(ctx)[str(key)] for key in feed["_key"].to_pylist()}, "no element of this document changed"
    assert run_silver(ctx) == []
    (children,) = ctx.settings.silver.children.values()
    assert ("cart" in ctx.tables.columns(_ORDERS)) == children["cart.lines"].keep
    assert run_reconcile(ctx, typed=True).holds


# promise 2
@pytest.mark.parametrize("first", [True, False], ids=["of the first load", "of a change"])
@pytest.mark.parametrize("step", ["between the tables", "before the elements", "after the elements"])
def test_a_kill_between_parent_and_child_heals_at_the_next_run(
    ctx: LazyContext, database: Db, step: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database)
    capture_without_spark(ctx)
    if not first:
        run_silver(ctx)
        change(database)
        capture_without_spark(ctx)

    def killed_at(work: Callable[..., Any]) -> Callable[..., Any]:
        def killed(*args: Any, **others: Any) -> Any:
            if step == "between the tables" or "order_lines" in f"{args[1]} {getattr(args[0], 'folder', '')}":
                raise KeyboardInterrupt
            return work(*args, **others)

        return killed

    steps: dict[str, tuple[type, str]] = {
        "between the tables": (ChildRun, "run"),
        "before the elements": (MergeableTable, "load" if first else "merge"),
        "after the elements": (DeltaRsTables, "set_properties"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(*steps[step], killed_at(getattr(*steps[step])))
        with pytest.raises(KeyboardInterrupt):
            run_silver(ctx)
    run_silver(ctx)
    assert_equal_to_source(ctx, database)
    assert_cuts_agree(ctx)


# promise 2
def test_a_child_that_is_asked_for_later_is_made_from_the_rows_that_are_there(ctx: LazyContext, database: Db) -> None:
    fill(database)
    database.orders.delete_one({"_id": 1003})  # its value would make the column JSON
    capture_without_spark(ctx)
    run_silver(replace(ctx, settings=ctx.settings.model_copy(update={"silver": type(ctx.settings.silver)()})))
    assert not ctx.tables.exists(_LINES)
    run_silver(ctx)
    assert_equal_to_source(ctx, database)
    database.other.insert_one({"_id": 2})
    capture_without_spark(ctx)
    run_silver(ctx)
    assert_cuts_agree(ctx)


# promise 2
def test_drops_new_fields_rebuilds_and_upkeep_of_the_parent_reach_the_child(
    ctx: LazyContext, spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    own = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    (tmp_path / "articles.sql").write_text(_ARTICLES)
    settings = ctx.settings.model_copy(update={"gold": GoldSettings(sql_dir=str(tmp_path))})
    by_spark = JobContext(settings, spark, own.tables)
    both = replace(ctx, with_spark=lambda: by_spark)
    fill(database)
    capture_without_spark(ctx)
    run_silver(ctx)
    run_gold(by_spark)
    database.orders.update_one({"_id": 3}, {"$set": {"cart.lines.0.weight": 1.5}})
    change(database)
    capture_without_spark(ctx)
    run_silver(both)
    assert_equal_to_source(ctx, database)
    assert [row["weight"] for row in rows_at(ctx, _LINES) if row["weight"] is not None] == [1.5]
    set_state(ctx.tables, "test", "stopped", by="test", why=None)
    settings = with_children(settings, database, keep=False)
    by_spark, both = replace(by_spark, settings=settings), replace(both, settings=settings)
    run_silver(both)
    assert "cart" in ctx.tables.columns(_ORDERS), "a rebuild leaves the column out"
    run_rebuild(both, "orders")
    assert "cart" not in ctx.tables.columns(_ORDERS)
    run_silver(both)
    assert_equal_to_source(ctx, database)
    with pytest.raises(ConfigurationError, match=r"has the elements of cart\.lines in .*\.orders: it is made from its"):
        run_rebuild(both, "order_lines")
    run_maintain(by_spark)
    set_state(ctx.tables, "test", "running", by="test", why=None)
    database.orders.drop()
    database.orders.insert_one({"_id": 1, "cart": {"lines": [{"sku": "after", "n": 1, "weight": 2.5}]}})
    capture_without_spark(ctx)
    run_silver(both)
    assert_equal_to_source(ctx, database)
    assert len(rows_at(ctx, _LINES)) > 50, "tombstones keep their elements"
    run_gold(by_spark)
    assert rows_at(ctx, TableName("gold", "articles")) == [{"sku": "after", "articles": 1}]
    assert run_silver(both) == []
    set_state(ctx.tables, "test", "stopped", by="test", why=None)
    assert _LINES in delete_source(by_spark, by="test", why=None)
    assert own_tables(ctx.tables, "silver") == []


# promise 2
# why long: tables that only Spark writes
@pytest.mark.long
@pytest.mark.parametrize("kind", ["portable", "native"])
def test_elements_with_names_and_types_of_spark_alone_follow_their_documents(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, kind: str
) -> None:
    """A name with a blank gives the table column mapping. Values of several kinds are VARIANT in a native table."""
    settings = with_children(settings_for(mongo_uri, database.name, tmp_path / "lake"), database)
    silver = settings.silver.model_copy(update={"compatibility": kind, "history": "scd2"})
    own = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    ctx = JobContext(settings.model_copy(update={"silver": silver}), spark, own.tables)

    def assert_equal() -> None:
        run_capture(ctx.for_capture(), once=True)
        run_silver(ctx)
        source = [
            (document["_id"], place, line["net weight"])
            for document in database.orders.find()
            for place, line in enumerate(document["cart"]["lines"])
        ]
        parents = ctx.tables.read(_ORDERS).select("_key", "_id", "cart.lines")
        rows = ctx.tables.read(_LINES).where("NOT _deleted").join(parents, "_key")
        valid = ctx.tables.read(history_of(_LINES)).where("_valid_to_position IS NULL").join(parents, "_key")
        assert sorted(map(tuple, rows.selectExpr("_id", "_ordinal", "`net weight`").collect())) == sorted(source)
        assert sorted(map(tuple, valid.selectExpr("_id", "_ordinal", "`net weight`").collect())) == sorted(source)
        assert rows.where("NOT CAST(v AS STRING) <=> CAST(lines[_ordinal].v AS STRING)").count() == 0

    lines = [{"sku": f"s{n}", "net weight": n, "v": n} for n in range(3)]
    database.orders.insert_many([{"_id": number, "cart": {"lines": lines[: number % 4]}} for number in range(8)])
    database.orders.insert_one({"_id": 8, "cart": {"lines": [{"sku": "t", "net weight": 0, "v": True}]}})
    assert_equal()
    database.orders.update_one({"_id": 3}, {"$set": {"cart.lines.1.net weight": 7, "cart.lines.2.v": 8}})
    database.orders.update_one({"_id": 2}, {"$pull": {"cart.lines": {"sku": "s0"}}})
    database.orders.delete_one({"_id": 7})
    assert_equal()
    database.orders.update_one({"_id": 3}, {"$set": {"cart.lines.1.new, field": 1}})
    assert_equal()
    assert ctx.tables.read(_LINES).where("`new, field` = 1").count() == 1
