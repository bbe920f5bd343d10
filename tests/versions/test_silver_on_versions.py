"""Silver on each version, and below an upgrade: it equals the source, byte for byte. Needs Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, pipeline, silver
from mongod_versions import VERSIONS, Seen, Server, starts_all_versions
from processes import repeated
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from test_upgrades_in_place import change, feature_version, running, set_feature_version

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.silver.run_silver import run_silver

Db = Database[dict[str, Any]]


def test_silver(server: Server, database: Db, spark: SparkSession, tmp_path: Path, seen: Seen) -> None:
    """Documents change and go while the snapshot reads them. Then collections are dropped, renamed and made anew."""
    ctx = pipeline(spark, server.uri, database.name, tmp_path, snapshot_chunk_size=200)
    database.a.insert_many([{"_id": number, "n": 0, "text": "x" * 500} for number in range(2_000)])

    def write(number: int) -> None:
        database.a.update_one({"_id": number * 37 % 2_000}, {"$inc": {"n": 1}})
        database.a.delete_one({"_id": number * 41 % 2_000})
        database.a.insert_one({"_id": 10_000 + number})

    with repeated(write, every=0):
        assert run_capture(ctx, once=True).documents > 0
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    database.a.rename("b")
    database.a.insert_one({"_id": 1, "again": True})
    database.c.insert_one({"_id": 1})
    database.c.drop()
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "b")
    assert silver(ctx, "c").where("NOT _deleted").isEmpty()
    assert_streamed_exactly_once(ctx)
    seen.works("Silver equals the source, document by document", server)
    _reconcile(server, ctx, seen)


def _reconcile(server: Server, ctx: JobContext, seen: Seen) -> None:
    if server.is_older_than(5):
        with pytest.raises(ConfigurationError) as refused:
            run_reconcile(ctx)
        seen.refused("`reconcile`", server, refused.value)
    else:
        assert run_reconcile(ctx).holds
        seen.works("`reconcile`", server)


@starts_all_versions
def test_silver_below_an_upgrade(spark: SparkSession, tmp_path: Path) -> None:
    """4.4, 5.0, 6.0.5, 6.0.27 below one lake. Changes also happen between the last capture and the upgrade."""
    port, last = None, ""
    for step, version in enumerate(VERSIONS):
        with running(version, tmp_path / "data", port) as (uri, port, client):
            ctx = pipeline(spark, uri, "shop", tmp_path / "lake")
            for moment in ("binary", "features"):
                if moment == "features":
                    set_feature_version(client, version[:3])
                else:
                    assert feature_version(client) <= version[:3]
                change(client.shop, 2 * step + (moment == "features"))
                result = run_capture(ctx, once=True)
                assert result.events > 0 or step == 0
                run_silver(ctx)
                living = [name for name in client.shop.list_collection_names() if name.startswith(("a", "b"))]
                assert_equal_to_source(ctx, client.shop, *living)
                assert_streamed_exactly_once(ctx)
            reads = bronze(ctx).where("op = 'r' AND collection = 'a'").count()
            assert reads == 20, "a snapshot was read once, by the first version, and never again"
            (position,) = bronze(ctx).where("op IN ('c', 'u', 'd', 'ddl')").agg(F.max("position")).collect()[0]
            assert position > last
            last = position
            change(client.shop, 100 + step)
