"""Shard keys read from `config.collections`. A replica set has no shards, so the test inserts the entry."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from strandline.errors import ConfigurationError
from strandline.jobs.selection import check_ids
from strandline.settings.capture import CaptureSettings
from strandline.source.client import Collection
from strandline.source.deployment import Deployment
from strandline.source.sharding import shard_keys
from strandline.source.stages import Selection

CLUSTER = Deployment("6.0.5", None, True, "sharded")


def test_the_shard_keys_of_captured_collections_are_read_and_judged(
    mongo: MongoClient[dict[str, Any]], database: Database[dict[str, Any]]
) -> None:
    for name in "abc":
        database[name].insert_one({"_id": 1})
    entries = [
        {"_id": f"{database.name}.a", "key": {"region": 1, "_id": 1}},
        {"_id": f"{database.name}.b", "key": {"_id": "hashed"}},
        {"_id": f"{database.name}.c", "key": {"region": 1}, "dropped": True},
    ]
    mongo.config["collections"].insert_many(entries)
    try:
        captured = [Collection(database.name, name, None) for name in "abc"]
        assert shard_keys(mongo, captured) == {f"{database.name}.a": ["region", "_id"], f"{database.name}.b": ["_id"]}
        assert shard_keys(mongo, captured[1:2]) == {f"{database.name}.b": ["_id"]}
        selection = Selection("database", database.name)
        with pytest.raises(
            ConfigurationError, match=rf"an _id of {database.name}\.a may exist on several shards.*region, _id"
        ):
            check_ids(CaptureSettings(), selection, mongo, CLUSTER)
        assert check_ids(CaptureSettings(sharded_ids_are_unique=True), selection, mongo, CLUSTER).startswith(
            "taken for unique"
        )
        safe = Selection("database", database.name, excluded_collections=(f"{database.name}.a",))
        assert (
            check_ids(CaptureSettings(), safe, mongo, CLUSTER)
            == "unique (the shard key of every sharded collection is _id)"
        )
    finally:
        mongo.config["collections"].delete_many({"_id": {"$in": [entry["_id"] for entry in entries]}})
