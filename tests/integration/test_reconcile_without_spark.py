"""`reconcile` without Spark gives the report of Spark, and starts Spark only where it must."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from lakehouse import land, pipeline, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark_refused import WITHOUT_SPARK, SparkIsNeeded, lake_without_spark

from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import LazyContext
from strandline.jobs.reconcile import engines
from strandline.jobs.reconcile.run_reconcile import differing_keys, run_reconcile
from strandline.model.tables import TableName, literal

Db = Database[dict[str, Any]]
pytestmark = WITHOUT_SPARK
_TABLE, _HISTORY = TableName("silver", "a"), TableName("silver", "a_history")
_IDS: list[Any] = [
    *range(40),
    *(bson.ObjectId() for _ in range(40)),
    *(2**40 + n for n in range(10)),
    *(n + 0.5 for n in range(10)),
    *(f"text {n}" for n in range(10)),
    *(Decimal128(f"{n}E3") for n in range(50, 55)),
    *({"a": n} for n in range(5)),
    *(bson.Binary(bytes([n]) * 16, 4) for n in range(5)),
    *(bson.Timestamp(n, 1) for n in range(1, 4)),
    *(bson.DatetimeMS(n * 10**15) for n in range(1, 4)),
    *(None, True, False, bson.MinKey(), bson.MaxKey(), float("nan"), b"bytes"),
]
_VALUES: list[Any] = [
    *(0.0, -0.0, float("nan"), float("inf"), 1.5, 1, 2**40, "text", "", None, True, b"bytes"),
    *(Decimal128("0.50"), Decimal128("-0"), Decimal128("1E40"), bson.DatetimeMS(2**62), bson.DatetimeMS(-1)),
    *([], [1, None], [{"b": -0.0}], [{"b": 0.0}], {}, {"d": 1}, {"d": None}, {"d": "text"}, bson.Regex("a", "i")),
]
_DAMAGES = {
    "v": "NULL",
    "w": "NULL",
    "d": "-d",
    "_rescued": """'{"x": {"type": "int", "value": 1}}'""",
    "_document": f"X'{bson.encode({'_id': 5}).hex()}'",
}
"""SQL by column."""


def report(ctx: JobContext | LazyContext, *, typed: bool = True) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Results and differing keys. The bounds of the ranges are a sample, so how many differ is left out."""
    run = run_reconcile(ctx, typed=typed)
    results = [{**asdict(one), "differing": one.differing > 0} for one in run.collections]
    return results, differing_keys(ctx, run.run_id, 10_000)


def fill(database: Db, chance: random.Random) -> None:
    names = ("v", "w", "x.y", "_op")
    database.a.insert_many(
        [
            {"_id": identifier, "d": chance.choice([0.0, -0.0, 2.5])} | {name: chance.choice(_VALUES) for name in names}
            for identifier in _IDS
        ]
    )


def damage(ctx: JobContext, table: TableName, chance: random.Random) -> None:
    """Change columns and documents of some rows, delete some, and add some."""
    keys = [row["_key"] for row in ctx.tables.read(table).where("NOT _deleted").select("_key").collect()]

    def some() -> str:
        return f"_key IN ({', '.join(map(literal, chance.sample(keys, 4)))})"

    ghost = ctx.tables.read(table).where(f"_key = {literal(keys[0])}").localCheckpoint()
    for column, value in _DAMAGES.items():
        ctx.tables.update(table, {column: value}, some())
    ctx.tables.delete(table, some())
    for key, document in (("9001", bson.encode({"_id": 9001})), ("9002", None)):
        ctx.tables.append(table, ghost.withColumns({"_key": F.lit(key), "_document": F.lit(document)}))


# promise 6
# why long: forty seconds each
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_both_ways_report_the_same_differences(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_chunk_size=30), history="scd2")
    fill(database, chance)
    database.b.insert_one({"_id": 1})
    land(ctx)
    database.a.delete_many({"_id": {"$in": chance.sample(_IDS, 20)}})
    database.a.update_many({"_id": {"$in": chance.sample(_IDS, 20)}}, {"$set": {"w": 7, "new": [{"n": -0.0}]}})
    land(ctx)
    right = report(lake_without_spark(ctx.settings))
    assert right == report(ctx)
    assert [one["differing"] for one in right[0]] == [False, False]
    assert right[1] == []
    damage(ctx, _TABLE, chance)
    ctx.tables.update(_HISTORY, {"d": "7.5"}, "_key = '3'")
    wrong = report(lake_without_spark(ctx.settings))
    assert wrong == report(ctx)
    kinds = {row["kind"] for row in wrong[1]}
    assert kinds == {"missing", "extra", "different", "column", "history"}
    repairing = run_reconcile(lake_without_spark(ctx.settings), typed=True, repairs=True)
    assert repairing.collections[0].repaired == len(wrong[1]) - 1
    land(ctx)
    assert [(row["kind"], row["key"]) for row in report(lake_without_spark(ctx.settings))[1]] == [("history", "3")]


def test_differences_above_the_memory_of_this_process_are_compared_by_spark(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_many([{"_id": number} for number in range(100)])
    land(ctx)
    ctx.tables.delete(_TABLE, "_key < '5'")
    expected = report(ctx)
    monkeypatch.setattr(engines, "_HELD_BYTES", 1_000)
    lake = lake_without_spark(ctx.settings)
    with pytest.raises(SparkIsNeeded):
        report(lake)
    assert report(LazyContext(lake.settings, lake.tables, lambda: ctx)) == expected
