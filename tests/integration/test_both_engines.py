"""The whole way with `engine: spark` and with `engine: auto`: equal tables, and who wrote them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from lake_place import NATIVE_PLACES, PLACE
from lakehouse import COMPATIBILITY, assert_equal_to_source, settings_for
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.io.tables.table_store import own_tables
from strandline.jobs.context import JobContext, tables_of
from strandline.jobs.operations.engines import engines_of_rows
from strandline.jobs.run import run_once
from strandline.model.engines import SPARK, engine_in
from strandline.model.table_schemas import CHANGE_OPS
from strandline.model.tables import TableName
from strandline.settings.output import GoldSettings
from strandline.settings.selection import Engine
from strandline.settings.silver import ChildTable, SilverSettings

Db = Database[dict[str, Any]]
pytestmark = [
    pytest.mark.skipif(PLACE not in NATIVE_PLACES, reason="only Spark writes there"),
    pytest.mark.skipif(COMPATIBILITY == "native", reason="only Spark writes native tables"),
]
_COLLECTIONS = ("customers", "events", "orders")
_TOTALS = """-- materialized: incremental
-- keys: kind
SELECT kind, count(*) AS orders, sum(total) AS total, max(at) AS newest FROM silver.orders
WHERE NOT _deleted GROUP BY kind
"""
_OF_A_RUN = {"writer", "batch", "epoch", "captured_at", "resume_token", "last_event", "ends_outside_transaction"} | {
    "snapshot_id",
    "chunk",
    "_bronze_version",
    "_captured_at",
}
"""Columns that tell of the run that wrote the row: its time, its batches, its snapshot."""
_OF_A_READ = {"position", "cluster_time", "source", "_position", "_base_position", "_cluster_time", "_valid_from"}
"""Columns that tell when a snapshot read the document. Two snapshots read it at two times."""


def opened(spark: SparkSession, uri: str, database: str, root: Path, engine: Engine) -> JobContext:
    (root / "sql").mkdir(parents=True)
    (root / "sql" / "totals.sql").write_text(_TOTALS)
    sections = {
        "engine": engine,
        "gold": GoldSettings(sql_dir=str(root / "sql")),
        "silver": SilverSettings(
            history="scd2",
            history_collections=(f"{database}.orders",),
            children={
                f"{database}.orders": {"items": ChildTable(table="order_items", key="sku")},
                f"{database}.customers": {"visits.marks": ChildTable(table="marks", key="c", keep=False)},
            },
        ),
    }
    settings = settings_for(uri, database, root / "lake", engine=None).model_copy(update=sections)
    return JobContext(settings, spark, tables_of(spark, settings.lake_location, settings))


def run(ctx: JobContext) -> str:
    """Run the whole way. Return who wrote what."""
    return run_once(ctx, lambda: ctx, report=lambda *_: None, silver_report=lambda _: None).engines


def fill(database: Db) -> None:
    for number in range(40):
        database.orders.insert_one(
            {
                "_id": number,
                "kind": f"kind {number % 4}",
                "total": 2**40 * number,
                "at": datetime(2026, 1, 1 + number % 28, tzinfo=UTC),
                "items": [{"sku": f"s{place}", "price": bson.Decimal128(f"{place}.50")} for place in range(number % 3)],
            }
        )
    values = (1.5, "x", b"b")
    visits = [{"n": 1, "marks": [{"c": "a"}, None, {"c": "a"}]}, {"n": 2, "marks": [{"c": "b"}]}]
    database.customers.insert_many(
        [
            {"_id": bson.ObjectId(f"{n:024x}"), "name": {"first": "é", "none": None}, "v": values[n], "visits": visits}
            for n in range(3)
        ]
    )
    database.events.insert_many([{"_id": f"e{number}", "n": number} for number in range(20)])


def change(database: Db) -> None:
    """Insert, update, replace and delete. One collection gets a field that its table lacks."""
    database.orders.update_many({"_id": {"$lt": 5}}, {"$set": {"kind": "moved", "items.0.sku": "new"}})
    database.orders.update_one({"_id": 6}, {"$unset": {"at": ""}})
    database.customers.update_one({"v": b"b"}, {"$set": {"visits.1.marks": [{"c": "b"}, {"c": "a"}]}})
    database.orders.update_one({"_id": 11}, {"$set": {"items.0.price": bson.Decimal128("9.00")}})
    database.orders.replace_one({"_id": 7}, {"kind": "kind 3", "total": 1, "items": []})
    database.orders.delete_many({"_id": {"$gte": 37}})
    database.orders.insert_one({"_id": 40, "kind": "kind 0", "total": -1})
    database.customers.update_one({"v": "x"}, {"$set": {"v": bson.Int64(7)}})
    database.customers.delete_one({"v": 1.5})
    database.events.insert_one({"_id": "e20", "n": 20, "new": {"field": True}})


def stable(row: dict[str, Any]) -> str:
    """Return a row as text, without what tells of the run that wrote it."""
    is_read = (row.get("position") or row.get("_position") or "").endswith("~")
    left_out = _OF_A_RUN | (_OF_A_READ if is_read else set())
    return repr(sorted((name, _stable(value)) for name, value in row.items() if name not in left_out))


def _stable(value: Any) -> Any:
    return "a read" if isinstance(value, str) and value.endswith(":~") else value


def content(ctx: JobContext, table: TableName) -> tuple[dict[str, str], list[str]]:
    """Return types and rows of *table*. Of bronze: the changes and the documents of snapshots."""
    frame = ctx.tables.read(table)
    rows = frame.where(frame.op.isin(*CHANGE_OPS)) if table.layer == "bronze" else frame
    return dict(frame.dtypes), sorted(map(stable, rows.toArrow().to_pylist()))


# promises 2 and 7
def test_spark_alone_and_auto_write_equal_tables(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    by_spark, auto = (opened(spark, mongo_uri, database.name, tmp_path / one, one) for one in ("spark", "auto"))
    fill(database)
    assert run(by_spark) == "bronze: Spark; silver: Spark 4 tables; gold: Spark 1 table"
    assert run(auto) == "bronze: delta-rs; silver: delta-rs 3 tables, Spark 1; gold: Spark 1 table"
    change(database)
    assert run(by_spark) == "bronze: Spark; silver: Spark 4 tables; gold: Spark 1 table"
    assert run(auto) == "bronze: delta-rs; silver: delta-rs 3 tables, Spark 1; gold: delta-rs 1 table"
    names = own_tables(by_spark.tables, "bronze", "silver", "gold")
    assert names == own_tables(auto.tables, "bronze", "silver", "gold")
    assert [str(name) for name in names] == [
        "bronze.test",
        *("silver.customers", "silver.events", "silver.marks", "silver.order_items", "silver.order_items_history"),
        *("silver.orders", "silver.orders_history"),
        "gold.totals",
    ]
    for name in names:
        types, rows = content(by_spark, name)
        assert (types, rows) == content(auto, name), name
        assert len(rows) > 2, name
        commits = by_spark.tables.commits_after(name, -1)
        assert {engine_in(commit.engine) for commit in commits} == {SPARK}, f"every commit of {name}"
    assert engines_of_rows(by_spark.tables) == dict.fromkeys(names, "Spark")
    assert {str(name): engine for name, engine in engines_of_rows(auto.tables).items()} == {
        "bronze.test": "delta-rs",
        "silver.customers": "delta-rs",
        "silver.events": "delta-rs",
        "silver.marks": "delta-rs",
        "silver.order_items": "delta-rs",
        "silver.order_items_history": "Spark",
        "silver.orders": "delta-rs",
        "silver.orders_history": "Spark",
        "gold.totals": "delta-rs",
    }
    assert_equal_to_source(by_spark, database, *_COLLECTIONS)
    assert_elements_have_their_versions(auto)


def assert_elements_have_their_versions(ctx: JobContext) -> None:
    """Compare the history of items with the versions of documents, as pure Python explodes and joins them."""
    versions = ctx.tables.read(TableName("silver", "orders_history")).orderBy("_key", "_position").toArrow().to_pylist()
    expected: dict[tuple[Any, ...], list[list[Any]]] = {}
    for row in versions:
        seen: Counter[Any] = Counter()
        for place, item in enumerate(row["items"] or []):
            identity, content = (row["_key"], item["sku"], seen[item["sku"]]), [place, item["price"]]
            seen[item["sku"]] += 1
            before = expected.setdefault(identity, [])
            if before and before[-1][:2] == content and before[-1][3] == row["_position"]:
                before[-1][3:] = row["_valid_to_position"], row["_valid_to"]
            else:
                before.append([*content, row["_position"], row["_valid_to_position"], row["_valid_to"]])
    rows = ctx.tables.read(TableName("silver", "order_items_history")).orderBy("_position").toArrow().to_pylist()
    found: dict[tuple[Any, ...], list[list[Any]]] = {}
    for row in rows:
        names = ("_ordinal", "price", "_position", "_valid_to_position", "_valid_to")
        found.setdefault((row["_key"], row["sku"], row["_occurrence"]), []).append([row[name] for name in names])
    assert found == expected
    assert any(len(one) > 1 for one in found.values()), "an element has several versions"
    assert len(rows) < sum(len(row["items"] or []) for row in versions), "equal neighbours are one version"
