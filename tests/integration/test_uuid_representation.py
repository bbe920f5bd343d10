"""UUIDs of both subtypes, whatever the URI says of how a driver shows them: bytes stay bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from bson.binary import Binary, UuidRepresentation
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, land, pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.jobs.reconcile.run_reconcile import run_reconcile

Db = Database[dict[str, Any]]
_WAYS = (UuidRepresentation.STANDARD, UuidRepresentation.JAVA_LEGACY)
"""Subtypes 4 and 3."""


def identifier(number: int) -> Binary:
    return Binary.from_uuid(UUID(int=number * 2**64 + 7), _WAYS[number % 2])


# scenario: A09
@pytest.mark.long
@pytest.mark.parametrize("named", ["standard", "javaLegacy", "pythonLegacy"])
def test_uuids_are_captured_under_every_representation_of_the_uri(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, named: str
) -> None:
    documents = [
        {"_id": identifier(number), "other": identifier(number + 1), "in": [identifier(number)]}
        for number in range(500)
    ]
    database.a.insert_many(documents)
    database.b.insert_many([{"_id": number, "kind": identifier(number % 3)} for number in range(9)])
    kind = UUID(bytes=bytes(identifier(2)))
    ctx = pipeline(
        spark,
        f"{mongo_uri}&uuidRepresentation={named}",
        database.name,
        tmp_path,
        snapshot_chunk_size=200,
        snapshot_collection_filter_overrides={f"{database.name}.b": f'{{"kind": {{"$uuid": "{kind}"}}}}'},
    )
    land(ctx)
    assert bronze(ctx).where("op = 'r' AND collection = 'a'").count() == 500
    assert bronze(ctx).where("op = 'snapshot' AND operation_type = 'chunk' AND collection = 'a'").count() >= 3, (
        "no bound is a UUID"
    )
    assert [row["key"] for row in bronze(ctx).where("op = 'r' AND collection = 'b'").orderBy("key").collect()] == [
        "2",
        "5",
        "8",
    ]
    for number in (1, 2):
        database.a.update_one({"_id": identifier(number)}, {"$set": {"other": identifier(number + 5)}})
        database.a.delete_one({"_id": identifier(number + 2)})
    land(ctx)
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, database, "a")
    compared = run_reconcile(ctx, collections=[f"{database.name}.a"])
    assert [each.differences for each in compared.collections] == [0]
