"""Source against silver: what differs is found key by key, repaired through bronze, and stays repaired when silver is rebuilt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId
from lakehouse import bronze, documents_in_silver, pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.errors import ConfigurationError, RetriableError
from pipelines.jobs.capture import run_capture
from pipelines.jobs.context import JobContext
from pipelines.jobs.reconcile import Reconciliation, differing_keys, run_reconcile
from pipelines.jobs.silver import run_silver
from pipelines.model.tables import TableName

Db = Database[dict[str, Any]]
ODD = [None, 2.5, "text", {"a": 1}, ObjectId(), True, Decimal128("7E3"), 2**40]


def caught_up(ctx: JobContext) -> None:
    run_capture(ctx, once=True)
    run_silver(ctx)


def kinds(ctx: JobContext, run: Reconciliation) -> dict[tuple[str, str], str]:
    return {(row["collection"], row["key"]): row["kind"] for row in differing_keys(ctx, run.run_id, 100)}


# scenario: T08
def test_silver_is_held_against_the_source_and_repaired_through_bronze(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    stages = [{"$match": {"$or": [{"fullDocument": None}, {"fullDocument.city": {"$ne": "Rome"}}]}}]
    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path,
        snapshot_chunk_size=50,
        cursor_pipeline=json.dumps(stages),
        field_exclude_list="*.*.secret",
    )
    database.people.insert_many([{"_id": number, "city": "Paris", "secret": number} for number in range(200)])
    database.people.insert_many([{"_id": identifier, "city": "Oslo"} for identifier in ODD])
    database.gone.insert_one({"_id": 1})
    with pytest.raises(ConfigurationError, match="no offset yet"):
        run_reconcile(ctx)
    caught_up(ctx)
    equal = run_reconcile(ctx)
    assert equal.holds
    assert {compared.collection.removeprefix(database.name): compared.documents for compared in equal.collections} == {
        ".people": 208,
        ".gone": 1,
    }
    assert max(compared.ranges for compared in equal.collections) > 2

    # ahead of the lake there is nothing to compare
    database.people.insert_one({"_id": 200, "city": "Paris"})
    with pytest.raises(RetriableError, match="bronze lacks"):
        run_reconcile(ctx, wait_seconds=0)
    run_capture(ctx, once=True)
    with pytest.raises(RetriableError, match="silver lacks"):
        run_reconcile(ctx, wait_seconds=0)
    run_silver(ctx)

    # a document leaves the filter, one is added behind it; silver itself is damaged in three more
    database.people.update_one({"_id": 17}, {"$set": {"city": "Rome"}})
    database.people.insert_one({"_id": 300, "city": "Rome"})
    caught_up(ctx)
    table = ctx.tables.delta(TableName("silver", "people"))
    table.delete(F.col("_key") == '"text"')
    table.update(F.col("_key") == "5", {"_document": F.unhex(F.lit("0e000000105f6964000500000000"))})
    ghost = ctx.tables.read(TableName("silver", "people")).where("_key = '6'")
    document = F.unhex(F.lit("0e000000105f6964000f27000000"))
    ctx.tables.append(TableName("silver", "people"), ghost.withColumns({"_key": F.lit("9999"), "_document": document}))
    expected = {"17": "different", "300": "missing", '"text"': "missing", "5": "different", "9999": "extra"}
    found = run_reconcile(ctx, collections=[f"{database.name}.people"])
    assert kinds(ctx, found) == {("people", key): kind for key, kind in expected.items()}
    (people,) = found.collections
    assert (people.missing, people.extra, people.different, people.repaired) == (2, 1, 2, 0)
    assert 0 < people.differing < people.ranges
    assert not found.holds

    version = ctx.tables.version(TableName("bronze", "test"))
    repaired = run_reconcile(ctx, repairs=True)
    assert repaired.holds
    assert sum(compared.repaired for compared in repaired.collections) == 5
    assert ctx.tables.version(TableName("bronze", "test")) == version + 1
    landed = bronze(ctx).where(F.col("snapshot_id") == "reconcile")
    assert {(row["op"], row["key"]) for row in landed.collect()} == {("r", "17"), ("r", "300"), ("r", '"text"'), ("r", "5"), ("d", "9999")}
    run_silver(ctx)
    database.gone.drop()
    caught_up(ctx)
    assert all(not compared.differing for compared in run_reconcile(ctx).collections)
    assert all(b"secret" not in document for document in documents_in_silver(ctx, "people").values())
    assert documents_in_silver(ctx, "gone") == {}
    with pytest.raises(ConfigurationError, match="no collection that is captured"):
        run_reconcile(ctx, collections=["no.such"])
