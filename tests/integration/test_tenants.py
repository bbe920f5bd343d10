"""Many databases in one silver table: changes, drops, sweeps, reconcile, rebuild, history and erase by tenant."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from pyspark.sql import SparkSession
from spark_refused import WITHOUT_SPARK, capture_without_spark, lake_without_spark
from tenants import ORDERS, Client, Tenants, assert_equal, by_both, land, rows

from strandline.errors import ConfigurationError, ContractError, StrandlineError
from strandline.jobs.erase.run_erase import run_erase
from strandline.jobs.lake_context import LazyContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import reset_offset
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.tables import TableName

pytestmark = WITHOUT_SPARK
_HISTORY = TableName("silver", "orders_history")


@pytest.fixture
def tenants(mongo: Client, database: Any) -> Iterator[Tenants]:
    own = Tenants(mongo, database.name)
    yield own
    own.drop()


@pytest.fixture
def ctx(mongo_uri: str, tenants: Tenants, tmp_path: Path) -> LazyContext:
    return lake_without_spark(tenants.settings(mongo_uri, tmp_path / "lake"))


def files_of(ctx: LazyContext) -> set[str]:
    return set(ctx.tables.folder(ORDERS).table().file_uris())


def fill(tenants: Tenants, count: int) -> None:
    for number in range(count):
        tenants[f"t{number}"].insert_many([{"_id": n, "n": number, f"own{number % 3}": n} for n in range(3)])


# promises 2 and 5
@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.long)])
def test_many_databases_are_one_table_and_a_run_costs_as_the_changed_ones(
    ctx: LazyContext, tenants: Tenants, count: int
) -> None:
    fill(tenants, count)
    capture_without_spark(ctx)
    (result,) = run_silver(ctx)
    assert (result.table, result.inserted) == (ORDERS, 3 * count)
    assert_equal(ctx, tenants)
    before, version = files_of(ctx), ctx.tables.version(ORDERS)
    tenants["new"].insert_many([{"_id": n, "n": "another type", "tenant": "a field"} for n in range(5)])
    capture_without_spark(ctx)
    (result,) = run_silver(ctx)
    assert (result.inserted, result.updated) == (5, 0)
    assert before < files_of(ctx), "rows of other tenants are not written again"
    assert ctx.tables.version(ORDERS) == version + 2, "rows, and the progress"
    assert {row["tenant"] for row in rows(ctx) if row["_rescued"] and "a field" in row["_rescued"]} == {"new"}
    tenants["t1"].update_one({"_id": 1}, {"$set": {"n": -1}})
    tenants["t2"].delete_one({"_id": 0})
    capture_without_spark(ctx)
    run_silver(ctx)
    assert_equal(ctx, tenants)
    assert run_silver(ctx) == []
    reconciled = run_reconcile(ctx)
    assert reconciled.holds
    assert sum(one.documents for one in reconciled.collections) == 3 * count + 4


def change_at_random(tenants: Tenants, names: str, chance: random.Random) -> None:
    for name in chance.choices(names, k=12):
        key = {"_id": chance.randrange(5)}
        match chance.randrange(3):
            case 0:
                tenants[name].delete_one(key)
            case 1:
                tenants[name].replace_one(key, {"v": chance.choice(["x", "y"])}, upsert=True)
            case _:
                tenants[name].update_one(key, {"$inc": {"n": 1}}, upsert=True)


def comparable(ctx: LazyContext, table: TableName) -> list[str]:
    """Return the rows without the version of bronze that a run has read."""
    return sorted(repr(sorted((row | {"_bronze_version": None}).items())) for row in rows(ctx, table))


# promise 2
def test_random_changes_of_several_tenants_converge(ctx: LazyContext, tenants: Tenants) -> None:
    chance = random.Random(91)
    for _ in range(4):
        change_at_random(tenants, "abc", chance)
        capture_without_spark(ctx)
        change_at_random(tenants, "abc", chance)
        land(ctx)
        assert_equal(ctx, tenants)


# promises 2 and 3
def test_a_tenant_leaves_and_comes_back_alone(
    spark: SparkSession, mongo_uri: str, tenants: Tenants, tmp_path: Path
) -> None:
    ctx = by_both(spark, tenants.settings(mongo_uri, tmp_path / "lake"))
    fill(tenants, 3)
    land(ctx)
    others = [row for row in rows(ctx) if row["tenant"] != "t1"]
    tenants.client.drop_database(tenants.prefix + "t1")
    land(ctx)
    assert [row for row in rows(ctx) if row["tenant"] != "t1"] == others
    assert [row["_deleted"] for row in rows(ctx) if row["tenant"] == "t1"] == [True] * 3
    tenants["t1"].insert_many([{"_id": 1, "n": 7}, {"_id": 9, "n": 8}])
    tenants["t2"].delete_one({"_id": 0})
    land(ctx)
    assert_equal(ctx, tenants)


# promises 1, 2 and 3
# why long: Spark merges a dozen times
@pytest.mark.long
def test_tenants_leave_return_and_are_swept_one_by_one(
    spark: SparkSession, mongo_uri: str, tenants: Tenants, tmp_path: Path
) -> None:
    settings, tables = tenants.settings(mongo_uri, tmp_path / "lake", history="scd2"), (ORDERS, _HISTORY)
    ctx, chance = by_both(spark, settings), random.Random(56)

    def live_again() -> None:
        change_at_random(tenants, "abcd", chance)
        land(ctx)
        assert_equal(ctx, tenants)
        now = [row for row in rows(ctx, _HISTORY) if row["_valid_to_position"] is None and not row["_deleted"]]
        assert {(row["tenant"], row["_document"]) for row in now} == tenants.documents()

    for name in "abcd":
        tenants[name].insert_many([{"_id": n, "v": name} for n in range(5)])
    live_again()
    others = [row for row in rows(ctx) if row["tenant"] != "a"]
    tenants.client.drop_database(tenants.prefix + "a")
    land(ctx)
    assert [row for row in rows(ctx) if row["tenant"] != "a"] == others
    assert all(row["_deleted"] for row in rows(ctx) if row["tenant"] == "a")
    tenants["b"].rename("left")
    tenants["c"].rename("left")
    tenants.client[tenants.prefix + "c"].left.rename("orders")
    live_again()
    tenants.client[tenants.prefix + "b"].left.rename("orders", dropTarget=True)
    live_again()

    tenants["c"].delete_many({})
    tenants.client.drop_database(tenants.prefix + "d")
    set_desired_state(ctx, "stopped", by="test", why=None)
    reset_offset(ctx.with_spark(), by="test", why=None)  # the snapshot alone tells that these documents are gone
    set_desired_state(ctx, "running", by="test", why=None)
    land(ctx)
    assert_equal(ctx, tenants)
    live_again()

    alone = tmp_path / "alone"
    shutil.copytree(tmp_path / "lake" / "bronze", alone / "bronze")
    anew = by_both(spark, tenants.settings(mongo_uri, alone, history="scd2", engine="spark"))
    run_silver(anew)
    for table in tables:
        assert comparable(anew, table) == comparable(ctx, table)
    set_desired_state(ctx, "stopped", by="test", why=None)
    rebuilt = run_rebuild(ctx, "orders")
    assert (rebuilt.missing, rebuilt.extra, rebuilt.different) == (0, 0, 0)
    assert_equal(ctx, tenants)

    tenants["a"].insert_one({"_id": 99})
    tenants["b"].insert_one({"_id": 99})
    set_desired_state(ctx, "running", by="test", why=None)
    land(ctx)
    with pytest.raises(ConfigurationError, match=r"orders is no database\.collection"):
        run_erase(ctx.with_spark(), "orders", keys=["99"], by="test")
    result = run_erase(ctx.with_spark(), str(tenants["a"].full_name), where="_id = 99", by="test", dry_run=False)
    assert {name: count for name, count in result.rows.items() if count} == dict.fromkeys(
        ("bronze.test", *map(str, tables)), 1
    )
    for table in tables:
        assert [row["tenant"] for row in rows(ctx, table) if row["_id"] == 99] == ["b"]


# promises 2 and 3
def test_reconcile_finds_and_repairs_a_difference_of_one_tenant(ctx: LazyContext, tenants: Tenants) -> None:
    fill(tenants, 3)
    land(ctx)
    ctx.tables.folder(ORDERS).table().delete("_id = 1 AND tenant = 't1'")
    ctx.tables.folder(ORDERS).table().update(predicate="_id = 2 AND tenant = 't2'", updates={"n": "77"})
    ctx.tables.folder(ORDERS).table().update(predicate="_id = 0 AND tenant = 't0'", updates={"tenant": "'t1'"})
    tenants["t0"].insert_one({"_id": 9})  # a repair waits until the source is later than the rows that it repairs
    land(ctx)
    found = run_reconcile(ctx, typed=True, repairs=True).collections
    differences = {one.collection.removeprefix(tenants.prefix): (one.missing, one.column) for one in found}
    assert differences == {"t0.orders": (0, 1), "t1.orders": (1, 0), "t2.orders": (0, 1)}
    land(ctx)
    assert_equal(ctx, tenants)
    assert [row["n"] for row in rows(ctx) if (row["tenant"], row["_id"]) == ("t2", 2)] == [2]


# promise 2
def test_a_rebuild_needs_no_spark_and_children_follow_the_table(
    mongo_uri: str, tenants: Tenants, tmp_path: Path
) -> None:
    children = {"orders": {"lines": {"table": "order_lines"}}}
    ctx = lake_without_spark(tenants.settings(mongo_uri, tmp_path / "lake", children=children))
    for name in "ab":
        tenants[name].insert_many([{"_id": n, "lines": [{"sku": "x", "n": n}] * n} for n in range(4)])
    land(ctx)
    tenants["b"].update_one({"_id": 3}, {"$push": {"lines": {"sku": "y"}}, "$set": {"tenant": "not this"}})
    land(ctx)
    lines = rows(ctx, TableName("silver", "order_lines"))
    tenant_of_key = {row["_key"]: row["tenant"] for row in rows(ctx)}
    assert sorted(tenant_of_key[row["_key"]] for row in lines) == ["a"] * 6 + ["b"] * 7
    set_desired_state(ctx, "stopped", by="test", why=None)
    result = run_rebuild(ctx, "orders")
    assert (result.engine, result.rows, result.missing, result.extra, result.different) == ("delta-rs", 8, 0, 0, 0)
    run_silver(ctx)
    assert_equal(ctx, tenants)
    tenants["c"].insert_one({"_id": 1, "lines": []})
    set_desired_state(ctx, "running", by="test", why=None)
    land(ctx)
    assert_equal(ctx, tenants)


# promise 3
def test_a_line_that_comes_changes_or_goes_loses_no_document(mongo_uri: str, tenants: Tenants, tmp_path: Path) -> None:
    def under(tables: dict[str, Any]) -> LazyContext:
        return lake_without_spark(tenants.settings(mongo_uri, tmp_path / "lake", tables=tables))

    fill(tenants, 2)
    land(under({}))
    tenants["t1"].insert_one({"_id": 10})
    merged = under({"orders": {"from": rf"{tenants.prefix}(?P<tenant>.*)\.orders"}})
    land(merged)
    assert_equal(merged, tenants)
    narrow = under({"orders": {"from": rf"{tenants.prefix}(?P<tenant>t0)\.orders"}})
    tenants["t1"].insert_one({"_id": 11})
    with pytest.raises(ContractError, match=r"silver\.orders was made from .* and silver\.tables says"):
        land(narrow)
    set_desired_state(narrow, "stopped", by="test", why=None)
    run_rebuild(narrow, "orders")
    set_desired_state(narrow, "running", by="test", why=None)
    land(narrow)
    assert {row["tenant"] for row in rows(narrow)} == {"t0"}
    left = under({})
    tenants["t0"].insert_one({"_id": 12})
    land(left)
    for name in ("t0", "t1"):
        own = next(one for one in left.tables.names("silver") if name in one.name)
        present = {row["_document"] for row in rows(left, own) if not row["_deleted"]}
        assert present == {bson.encode(document) for document in tenants[name].find()}


# promise 3
def test_a_table_of_another_collection_is_refused(mongo_uri: str, tenants: Tenants, tmp_path: Path) -> None:
    tables = {"lines": {"from": rf"{tenants.prefix}(?P<tenant>.*)\.orders"}}
    ctx = lake_without_spark(tenants.settings(mongo_uri, tmp_path / "lake", tables=tables, naming="collection"))
    tenants["a"].insert_one({"_id": 1})
    tenants.client[tenants.prefix + "b"].lines.insert_one({"_id": 1})
    with pytest.raises(StrandlineError, match=r"lines would share silver\.lines"):
        land(ctx)
    twice = {**tables, "more": {"from": rf"{tenants.prefix}a\..*"}}
    both = lake_without_spark(tenants.settings(mongo_uri, tmp_path / "lake", tables=twice))
    with pytest.raises(ConfigurationError, match=r"lines and more both claim the collection"):
        run_silver(both)
