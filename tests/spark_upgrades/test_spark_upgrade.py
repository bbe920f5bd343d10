"""A lake written by the oldest Spark with the oldest Delta, continued by the Spark of this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from lakehouse import assert_equal_to_source
from pydantic import SecretStr
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from pipelines.io.tables import Tables
from pipelines.jobs.context import JobContext
from pipelines.model.tables import Lake, TableName
from pipelines.settings.configuration import Settings
from pipelines.source.mongod import EmbeddedMongod

OLDER = Path(os.environ["OLDER_SPARK"])
OLDEST_DELTA = "io.delta:delta-spark_2.13:4.0.1"
CONF: dict[str, Any] = {
    "source": {"name": "shop"},
    "capture": {"scope": "database", "target": "shop", "engine": "spark"},
    "lake": {"root": "lake"},
    "silver": {"history": "scd2", "history_collections": ["shop.orders"]},
}


def run_once(python: Path, folder: Path, uri: str, delta: str | None) -> None:
    """Run the pipeline with the Spark of *python*, and with Delta's package *delta* instead of the one that belongs."""
    conf = CONF if delta is None else {**CONF, "spark": {"conf": {"spark.jars.packages": delta}}}
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "base.yml").write_text(yaml.safe_dump(conf), encoding="utf-8")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("STRANDLINE", "SPARK", "PYSPARK"))
    }
    done = subprocess.run(
        [str(python.with_name("strandline")), "run", "--once"],
        cwd=folder,
        env=kept | {"STRANDLINE_SOURCE__URI": uri},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]


def first(shop: Database[dict[str, Any]]) -> None:
    shop.orders.insert_many([{"_id": n, "total": n, "lines": [{"sku": "a", "qty": n}]} for n in range(20)])
    shop.people.insert_many([{"_id": n, "city": "Rome", "age": 20 + n} for n in range(5)])


def second(shop: Database[dict[str, Any]]) -> None:
    """Changes that widen a type, add a column, delete, and rename."""
    shop.orders.update_many({"_id": {"$lt": 5}}, {"$set": {"total": 2**40, "note": "new"}})
    shop.orders.delete_one({"_id": 19})
    shop.orders.insert_one({"_id": 100, "total": 1.5})
    shop.people.rename("persons")


@pytest.mark.parametrize("delta", [OLDEST_DELTA, None], ids=["Delta 4.0.1", "the same Delta"])
def test_a_lake_of_the_oldest_spark_is_continued(spark: SparkSession, tmp_path: Path, delta: str | None) -> None:
    with EmbeddedMongod() as server, MongoClient[dict[str, Any]](server.uri) as client:
        first(client.shop)
        run_once(OLDER, tmp_path, server.uri, delta)
        second(client.shop)
        run_once(Path(sys.executable), tmp_path, server.uri, None)
        settings = Settings(**CONF | {"source": {"name": "shop", "uri": SecretStr(server.uri)}})
        tables = Tables(spark, Lake(root=str(tmp_path / "lake")))
        ctx = JobContext(settings, spark, tables)
        assert_equal_to_source(ctx, client.shop, "orders", "persons")
        snapshots = tables.read(TableName("bronze", "shop")).where("op = 'r'").count()
        assert snapshots == 25, "the newer Spark went on with the stream; it took no second snapshot"
        client.shop.orders.update_one({"_id": 1}, {"$set": {"note": "back"}})
        run_once(OLDER, tmp_path, server.uri, None)  # back to the older Spark, with the Delta that belongs to it
        assert_equal_to_source(ctx, client.shop, "orders", "persons")
