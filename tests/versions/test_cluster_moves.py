"""Real moves of a collection between shards of a disposable cluster: `MONGODB_MOVES=yes make test-against URI=…`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, documents_in_silver, pipeline
from mongod_versions import Seen, Server
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.silver.run_silver import run_silver

pytestmark = pytest.mark.skipif(
    os.environ.get("MONGODB_MOVES") != "yes",
    reason="MONGODB_MOVES=yes moves collections between shards; for a disposable cluster only",
)

Db = Database[dict[str, Any]]


@pytest.mark.parametrize("command", ["movePrimary", "moveCollection"])
def test_a_moved_collection_keeps_its_documents(
    server: Server, database: Db, spark: SparkSession, tmp_path: Path, seen: Seen, command: str
) -> None:
    if command == "moveCollection" and server.is_older_than(8):
        pytest.skip("moveCollection came with MongoDB 8.0")
    ctx, admin = pipeline(spark, server.uri, database.name, tmp_path), server.client.admin
    database.a.insert_many([{"_id": number} for number in range(100)])
    run_capture(ctx, once=True)
    run_silver(ctx)
    shards = {each["_id"] for each in admin.command("listShards")["shards"]}
    (found,) = server.client.config.databases.find({"_id": database.name})
    other = min(shards - {found["primary"]})
    if command == "movePrimary":
        admin.command({"movePrimary": database.name, "to": other})
    else:
        admin.command({"moveCollection": f"{database.name}.a", "toShard": other})
    database.a.update_one({"_id": 1}, {"$set": {"v": 1}})
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    database.a.drop()
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert documents_in_silver(ctx, "a") == {}
    seen.works(f"A collection keeps its documents after `{command}`, and loses them at its drop", server)
