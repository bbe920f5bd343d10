"""The least that a user needs, secrets that appear nowhere, and names that come from outside."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from guarded_server import guarded_server
from guarded_server import uri_of as guarded_uri
from lakehouse import assert_equal_to_source, pipeline
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.operations.sql import run_sql
from strandline.jobs.operations.status import silver_status
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.tables import safe_name
from strandline.source.mongod import EmbeddedMongod

CANARY = "s3cret-canary-4711"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMongod]:
    """A server that asks for credentials: `reader` may read the database shop, `nobody` nothing."""
    with guarded_server(tmp_path_factory.mktemp("key"), CANARY) as (server, client):
        client.admin.command("createUser", "reader", pwd=CANARY, roles=[{"role": "read", "db": "shop"}])
        client.admin.command("createUser", "nobody", pwd=CANARY, roles=[])
        client.shop.orders.insert_many([{"_id": number} for number in range(3)])
        yield server


uri_of = partial(guarded_uri, password=CANARY)


def texts_of_every_table(ctx: JobContext) -> Iterator[str]:
    for layer in ("bronze", "silver", "control"):
        for table in ctx.tables.names(layer):
            rows = ctx.tables.read(table)
            yield from (row[0] for row in rows.select(F.to_json(F.struct("*"))).collect())
            yield str(ctx.tables.properties(table)) + str(ctx.tables.history(table, 50))


# scenario: U03, U04
def test_the_role_read_is_enough_and_no_secret_is_stored(
    spark: SparkSession, guarded: EmbeddedMongod, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("pymongo", "strandline"):
        caplog.set_level(logging.DEBUG, logger=name)
    ctx = pipeline(spark, uri_of(guarded, "reader"), "shop", tmp_path / "lake")
    run_capture(ctx, once=True)
    with MongoClient[dict[str, Any]](uri_of(guarded, "root")) as client:
        client.shop.orders.delete_one({"_id": 1})
        run_capture(ctx, once=True)
        run_silver(ctx)
        assert_equal_to_source(ctx, client.shop, "orders")

    more_rights = pipeline(spark, uri_of(guarded, "root"), "shop", tmp_path / "lake")
    assert run_capture(more_rights, once=True).documents == 0, "the same deployment, whoever asks"
    set_desired_state(more_rights, "paused", by="an operator", why="to see what is written down")
    with pytest.raises(ConfigurationError, match=r"code 13.*a privilege is missing → grant the user 'read'") as refused:
        run_capture(pipeline(spark, uri_of(guarded, "nobody"), "shop", tmp_path / "other"), once=True)

    said = [
        repr(refused.value),
        repr(ctx),
        repr(ctx.settings),
        str(show_offset(ctx)),
        str(silver_status(ctx)),
        caplog.text,
    ]
    said += texts_of_every_table(more_rights)
    assert [text for text in said if CANARY in text] == []
    assert [file for file in tmp_path.rglob("*") if file.is_file() and CANARY.encode() in file.read_bytes()] == []


# scenario: U06, U08, L05
def test_hostile_collection_and_field_names_reach_silver_as_names(
    spark: SparkSession, mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    hostile = ["a`b", "x'; drop table y; --", "A", "a", "etc/‥/line\nbreak 🛫"]
    for name in hostile:
        database[name].insert_one({"_id": name, "a`b": 1, "'; drop": {"a.b": 2, "": 3, "__proto__": "../../x"}})
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    run_capture(ctx, once=True)
    assert len(run_silver(ctx)) == len(hostile)
    assert_equal_to_source(ctx, database, *hostile)
    tables = {path.name for path in (tmp_path / "lake" / "silver").iterdir()}
    assert tables == {safe_name(name) for name in hostile}
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}
    (found,) = run_sql(
        ctx, f"select `'; drop`.`a.b` as n, cast(_rescued as string) as r from silver.{safe_name('a`b')}"
    ).collect()
    assert found["n"] == 2
    assert "a`b" in found["r"], "a back-tick cannot be quoted in a change feed: the value is rescued"
