"""A sharded cluster, as far as a stand-in for its mongos can show one (`mongos_stand_in`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from examined import examined
from lakehouse import settings_for
from mongos_stand_in import Answers, mongos_before
from pymongo import MongoClient
from pymongo.database import Database

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.model.deployment import IDENTITY_PROPERTY
from strandline.model.table_schemas import bronze_table
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.deployment import Deployment, inspect_deployment

Db = Database[dict[str, Any]]


def native(uri: str, database: Db, root: Path, **capture: Any) -> DeltaRsContext:
    ctx = open_capture_without_spark(settings_for(uri, database.name, root, **capture))
    assert ctx is not None
    return ctx


def inspected(uri: str) -> Deployment:
    with closing(open_client(ConnectionOptions(uri, server_selection_timeout_ms=3000))) as client:
        return inspect_deployment(client)


@pytest.fixture
def cluster_id(mongo: MongoClient[dict[str, Any]]) -> Iterator[ObjectId]:
    """Id of the cluster in ``config.version``, as config servers keep it."""
    number = ObjectId()
    mongo.config["version"].replace_one({"_id": 1}, {"_id": 1, "clusterId": number}, upsert=True)
    yield number
    mongo.config["version"].delete_one({"_id": 1})


def test_a_cluster_has_an_id_if_the_user_may_read_it(mongo_uri: str, cluster_id: ObjectId) -> None:
    with mongos_before(mongo_uri) as uri:
        found = inspected(uri)
        assert (found.sharded, found.set_name, found.identity) == (True, None, f"sharded/{cluster_id}")
    with mongos_before(mongo_uri, Answers(refused=("replSetGetConfig", "version"))) as uri:
        assert inspected(uri).identity == "sharded"


def test_capture_through_a_mongos(mongo_uri: str, database: Db, tmp_path: Path, cluster_id: ObjectId) -> None:
    database.a.insert_many([{"_id": number} for number in range(100)])
    with mongos_before(mongo_uri) as uri:
        ctx = native(uri, database, tmp_path)
        assert run_capture(ctx, once=True).documents == 100
        database.a.update_one({"_id": 1}, {"$set": {"x": 1}})
        assert run_capture(ctx, once=True).events == 1
        assert ctx.tables.properties(bronze_table("test"))[IDENTITY_PROPERTY] == f"sharded/{cluster_id}"
        assert examined(ctx)["source.topology"].found == "sharded cluster"
    # a user with fewer privileges, of the same cluster
    with mongos_before(mongo_uri, Answers(refused=("replSetGetConfig", "version"))) as uri:
        database.a.delete_one({"_id": 1})
        assert run_capture(native(uri, database, tmp_path), once=True).events == 1


@pytest.mark.usefixtures("cluster_id")
def test_another_cluster_under_the_same_name_is_refused(
    mongo_uri: str, mongo: MongoClient[dict[str, Any]], database: Db, tmp_path: Path
) -> None:
    database.a.insert_one({"_id": 1})
    with mongos_before(mongo_uri) as uri:
        ctx = native(uri, database, tmp_path)
        run_capture(ctx, once=True)
        version = ctx.tables.version(bronze_table("test"))
        mongo.config["version"].update_one({"_id": 1}, {"$set": {"clusterId": ObjectId()}})
        with pytest.raises(ConfigurationError, match="holds changes of another MongoDB deployment") as refused:
            run_capture(ctx, once=True)
        assert refused.value.next_step
        assert ctx.tables.version(bronze_table("test")) == version


def test_an_id_that_may_be_on_several_shards_is_refused(
    mongo_uri: str, mongo: MongoClient[dict[str, Any]], database: Db, tmp_path: Path
) -> None:
    database.a.insert_one({"_id": 1, "region": "x"})
    entry = {"_id": f"{database.name}.a", "key": {"region": 1}}
    mongo.config["collections"].insert_one(entry)
    try:
        with mongos_before(mongo_uri) as uri:
            ctx = native(uri, database, tmp_path)
            with pytest.raises(ConfigurationError, match="may exist on several shards"):
                run_capture(ctx, once=True)
            assert not ctx.tables.exists(bronze_table("test"))
            told = native(uri, database, tmp_path, sharded_ids_are_unique=True)
            assert run_capture(told, once=True).documents == 1
    finally:
        mongo.config["collections"].delete_one({"_id": entry["_id"]})


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        (Answers(version="4.2.24", mongos=False), r"MongoDB 4\.2\.24 is too old: Strandline reads 4\.4 and newer"),
        (Answers(wire_version=6, mongos=False), "the MongoDB server is too old for the installed pymongo"),
    ],
)
def test_a_server_that_is_too_old_is_refused(
    mongo_uri: str, database: Db, tmp_path: Path, answers: Answers, line: str
) -> None:
    with mongos_before(mongo_uri, answers) as uri:
        ctx = native(uri, database, tmp_path)
        with pytest.raises(ConfigurationError, match=line) as refused:
            run_capture(ctx, once=True)
        assert "strandline explain versions" in refused.value.next_step
        assert not ctx.tables.exists(bronze_table("test"))
