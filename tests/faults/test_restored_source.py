"""A source that was restored from a backup: the server does not report it, and capture must notice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, bronze, pipeline
from pymongo import MongoClient
from pyspark.sql import SparkSession

from strandline.errors import ResumePointLost
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.silver.run_silver import run_silver
from strandline.source.mongod import EmbeddedMongod


@contextmanager
def served(folder: Path) -> Iterator[MongoClient[dict[str, Any]]]:
    with EmbeddedMongod(data_dir=folder) as server, MongoClient[dict[str, Any]](server.uri) as client:
        yield client


def lake_of(spark: SparkSession, client: MongoClient[dict[str, Any]], tmp_path: Path, **capture: Any) -> JobContext:
    host, port = next(iter(client.nodes))
    return pipeline(spark, f"mongodb://{host}:{port}/?replicaSet=strandline", "shop", tmp_path / "lake", **capture)


# promise 3; scenario: G11
@pytest.mark.long
def test_a_source_that_was_restored_is_noticed_though_its_server_takes_the_token(
    spark: SparkSession, tmp_path: Path
) -> None:
    live, backup = tmp_path / "live", tmp_path / "backup"
    with served(live) as client:
        client.shop.a.insert_many([{"_id": 1}, {"_id": 2, "n": 0}])
        run_capture(lake_of(spark, client, tmp_path), once=True)
    shutil.copytree(live, backup)

    with served(live) as client:
        client.shop.a.insert_one({"_id": 3})
        client.shop.a.update_one({"_id": 2}, {"$set": {"n": 1}})
        ctx = lake_of(spark, client, tmp_path)
        run_capture(ctx, once=True)
        client.elsewhere.noise.insert_one({})
        run_capture(ctx, once=True)
        run_silver(ctx)
        (end,) = bronze(ctx).where("resume_token IS NOT NULL").orderBy("batch", ascending=False).limit(1).collect()
        assert end["op"] == "heartbeat", "an idle stream ends with a token of the server's own making"
        assert bronze(ctx).where(f"position LIKE '{end['last_event']}:%' AND op = 'u'").count() == 1
    shutil.rmtree(live)
    shutil.copytree(backup, live)

    with served(live) as client:
        client.shop.a.insert_one({"_id": 4})
        with pytest.raises(ResumePointLost, match=r"no longer has the last event that it sent .*on_history_lost: heal"):
            run_capture(lake_of(spark, client, tmp_path), once=True)
        healing = lake_of(spark, client, tmp_path, on_history_lost="heal")
        run_capture(healing, once=True)
        run_silver(healing)
        assert_equal_to_source(healing, client.shop, "a")
        client.shop.a.delete_one({"_id": 1})
        run_capture(healing, once=True)
        run_silver(healing)
        assert_equal_to_source(healing, client.shop, "a")
