"""Purged tombstones stay purged: neither late nor repeated events bring their documents back."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from bson import Timestamp
from delta.exceptions import MetadataChangedException
from lakehouse import assert_equal_to_source, bronze, land, pipeline, purge, restore, silver, with_silver
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.bronze.offsets import committed
from strandline.io.tables.ddl import schema_of
from strandline.jobs.context import JobContext
from strandline.jobs.doctor.findings import Notes
from strandline.jobs.doctor.source_facts import examine_source
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.maintenance.tombstone_purge import TombstonePurge
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.offsets.show_offset import offset_history, show_offset
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import BRONZE_DDL, bronze_table
from strandline.model.tables import TableName
from strandline.silver.silver_table import SilverTable
from strandline.source.mongod import EmbeddedMongod

Db = Database[dict[str, Any]]
BRONZE, A, HISTORY = bronze_table("test"), TableName("silver", "a"), TableName("silver", "a_history")


def append(ctx: JobContext, *rows: dict[str, Any]) -> None:
    schema = schema_of(BRONZE_DDL)
    filled = [tuple(row.get(column) for column in schema.names) for row in rows]
    ctx.tables.append(BRONZE, ctx.spark.createDataFrame(filled, schema))


def note(ctx: JobContext) -> str:
    """Return the reason why the purge watermark of ``silver.a`` cannot rise."""
    found = TombstonePurge.read(ctx)
    assert found is not None
    return found.run(A).note


def test_a_purge_that_a_writer_overtakes_is_left_for_another_time(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    land(ctx)
    ctx.tables.create(TableName("control", "rebuild_a_0123abcd"), schema_of("_key STRING"))

    def overtaken(*_: object) -> tuple[int, int]:
        raise MetadataChangedException("the metadata of the table has been changed by a concurrent update")

    monkeypatch.setattr(SilverTable, "purge", overtaken)
    results = {result.table: result for result in run_maintain(ctx)}
    assert results["silver.a"].note == "a writer was at work: remove tombstones another time"
    assert "control.rebuild_a_0123abcd" not in results, "the shadow table of a rebuild that is at work"


# scenario: D01, D06, D09
def test_purged_documents_stay_deleted(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), history="scd2")
    database.a.insert_many([{"_id": number} for number in range(4)])
    land(ctx)
    begun = offset_history(ctx, 1)[0].resume_token
    database.a.delete_many({"_id": {"$lt": 3}})
    database.a.insert_one({"_id": 2, "again": True})
    land(ctx)
    assert purge(ctx) == 0, "the watermark rises first: a MERGE that read the old one must end before rows are deleted"
    assert purge(ctx) == 2
    assert silver(ctx, "a").where("_deleted").isEmpty()
    versions = ctx.tables.read(HISTORY).count()

    # The snapshot's chunk is committed a second time.
    ctx.tables.append(BRONZE, bronze(ctx).where("op = 'r'"))
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert silver(ctx, "a").count() == 2, "not even a tombstone"
    assert ctx.tables.read(HISTORY).count() == versions == 8

    # The stream is replayed from its beginning, and a deleted key is inserted again.
    database.a.insert_one({"_id": 0, "again": True})
    database.a.delete_one({"_id": 3})
    set_desired_state(ctx, "stopped", by="ops", why="a test")
    alter_offset(ctx, str(begun), by="ops", why=None)
    assert note(ctx) == "", "no tombstone is left"
    set_desired_state(ctx, "running", by="ops", why=None)
    land(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert (silver(ctx, "a").where("_deleted").count(), ctx.tables.read(HISTORY).count()) == (1, 10)

    # By default tombstones are kept for days. While it is uncertain which events may still arrive, the watermark waits.
    assert note(ctx) == ""
    version, last = ctx.tables.version(BRONZE), committed(ctx.tables, BRONZE)
    assert last is not None
    plan = {"op": "snapshot", "operation_type": "plan", "snapshot_id": "s1", "after": json.dumps({"at": [1, 1]})}
    append(ctx, plan, {"op": "heartbeat", **asdict(replace(last, batch=1_000, snapshot_id="s1"))})
    assert note(ctx) == "tombstones wait for snapshot s1, which has not ended"
    append(ctx, {"op": "heartbeat", **asdict(replace(last, batch=1_001, last_event=None))})
    assert note(ctx) == "tombstones wait for the next event of the stream"
    restore(ctx, BRONZE, version)
    assert note(ctx) == "tombstones wait for the first capture after bronze was restored"
    never = ctx.settings.maintenance.model_copy(update={"tombstone_retention_hours": None})
    assert TombstonePurge.read(replace(ctx, settings=ctx.settings.model_copy(update={"maintenance": never}))) is None
    assert silver(ctx, "a").where("_deleted").count() == 1


# scenario: D06
def test_a_source_whose_clock_jumped_ahead_by_weeks_keeps_its_tombstones_and_is_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        EmbeddedMongod() as server,
        MongoClient[dict[str, Any]](server.uri) as client,
        client.start_session() as session,
    ):
        ctx = pipeline(spark, server.uri, "shop", tmp_path)
        client.shop.a.insert_many([{"_id": number} for number in range(3)])
        land(ctx)
        client.shop.a.delete_one({"_id": 0})
        land(ctx)
        assert show_offset(ctx).warning is None
        ahead = Timestamp(int(time.time()) + 21 * 24 * 3600, 1)
        session.advance_cluster_time({"clusterTime": ahead, "signature": {"hash": bytes(20), "keyId": 0}})
        client.shop.a.delete_one({"_id": 1}, session=session)
        land(ctx)
        for _ in range(2):
            assert note(ctx).startswith("tombstones wait for the time to catch up: the source's time is 20")
        assert silver(ctx, "a").where("_deleted").count() == 2
        assert SilverTable(ctx.tables, A).purge_watermark() == "", "nothing is old enough"

        assert ", 21.0 days ahead of this machine's clock: lags" in (show_offset(ctx).warning or "")
        notes = Notes()
        examine_source(notes, ctx.settings, None, date.today())
        found = next(each for each in notes.sorted() if each.check == "source.cluster_time")
        assert (found.severity, "ahead of this machine's clock" in found.found) == ("warning", True)
