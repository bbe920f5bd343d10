"""Drops, renames and what else becomes of a name: after each of them silver equals the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession

from pipelines.jobs.capture import run_capture
from pipelines.jobs.context import JobContext
from pipelines.jobs.silver import run_silver
from pipelines.model.tables import safe_name

Db = Database[dict[str, Any]]
NAMES = ("gone", "again", "old", "new", "source", "target", "out", "fresh", "there", "back", "first", "second", "third")


def fill(database: Db, *collections: str, life: int = 1) -> None:
    for name in collections:
        database[name].insert_many([{"_id": n, "life": life, "name": name} for n in range(life, life + 4)])


def assert_every_name_equals_the_source(ctx: JobContext, database: Db) -> None:
    there = {table.name for table in ctx.tables.names("silver")}
    assert there <= {safe_name(name) for name in NAMES}
    for name in NAMES:
        if safe_name(name) in there:
            assert_equal_to_source(ctx, database, name)
        else:
            assert database[name].count_documents({}) == 0, name


def change_names(database: Db, life: int) -> None:
    database.gone.drop()
    database.again.drop()
    fill(database, "again", life=life)
    database.old.rename("new", dropTarget=True)
    database.new.update_one({"_id": life}, {"$set": {"after": "rename"}})
    fill(database, "old", life=life)
    database.source.update_one({"_id": 2}, {"$set": {"life": 0}})
    database.source.rename("target", dropTarget=True)
    database.out.aggregate([{"$match": {"_id": {"$gt": 1}}}, {"$set": {"out": life}}, {"$out": "out"}])
    database.out.aggregate([{"$out": "fresh"}])
    database.there.rename("back")
    database.back.delete_one({"_id": life})
    database.back.rename("there")
    database.first.rename("second")
    database.second.insert_one({"_id": f"second {life}"})
    database.second.rename("third", dropTarget=True)


# scenario: H03, H04, H05, H07, H09, D06
def test_silver_equals_the_source_whatever_became_of_a_name(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    first = ("gone", "again", "old", "source", "target", "out", "there", "first")
    fill(database, *first)
    run_capture(ctx, once=True)
    run_silver(ctx)
    change_names(database, 3)
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_every_name_equals_the_source(ctx, database)
    assert_streamed_exactly_once(ctx)
