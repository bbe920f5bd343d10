"""The oplog has rolled over: every loss has a gap row, and healing makes silver equal to the source."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from examined import examined
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, pipeline
from pymongo import MongoClient
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError, ResumePointLost
from strandline.jobs.capture.job import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import last_offset, oplog_reach, set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.silver.job import run_silver
from strandline.model.table_schemas import bronze_table
from strandline.source.mongod import EmbeddedMongod

Client = MongoClient[dict[str, Any]]
_ROLL_SECONDS = 240


@contextmanager
def flooding(client: Client) -> Iterator[None]:
    """Write more to another collection than the oplog holds."""
    stop = threading.Event()

    def write(key: int) -> None:
        while not stop.is_set():
            client.noise.n.replace_one({"_id": key}, {"_id": key, "noise": os.urandom(1 << 20)}, upsert=True)

    writers = [threading.Thread(target=write, args=(key,)) for key in range(2)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        stop.set()
        for writer in writers:
            writer.join()


def roll_past(ctx: JobContext, client: Client) -> None:
    deadline = time.monotonic() + _ROLL_SECONDS
    with flooding(client):
        while (reach := oplog_reach(ctx, last_offset(ctx))) is None or reach.position is not None:
            assert time.monotonic() < deadline, "the oplog did not roll over"
            time.sleep(1)


# promise 3; scenario: G01, G06, G08, G13, A04
def test_a_forgotten_position_stops_by_default_and_is_healed_on_demand(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedMongod(oplog_size_mb=16) as server, Client(server.uri) as client:
        began, shop = datetime.now(UTC), client.shop
        shop.a.insert_many([{"_id": number, "n": 0} for number in range(30)])
        shop.b.insert_many([{"_id": number} for number in range(5)])
        ctx = pipeline(spark, server.uri, "shop", tmp_path / "heal")
        going_on = pipeline(spark, server.uri, "shop", tmp_path / "on", on_history_lost="restart_at_oldest")
        run_capture(ctx, once=True)
        run_capture(going_on, once=True)
        run_silver(ctx)
        shop.a.delete_many({"_id": {"$lt": 10}})
        shop.a.update_many({"_id": {"$gte": 20}}, {"$set": {"n": 1}})
        shop.a.insert_one({"_id": 100})
        shop.b.drop()
        roll_past(ctx, client)

        shown = show_offset(ctx)
        assert "no longer has the history" in (shown.warning or "")
        batch = shown.batch
        with pytest.raises(
            ResumePointLost, match=r"no longer has the history .*strandline offsets reset.*on_history_lost"
        ):
            run_capture(ctx, once=True)
        lost = examined(ctx)["source.position"]
        assert (lost.severity, lost.exit_code) == ("error", ResumePointLost.exit_code)
        assert "no longer has the history" in lost.found
        warned = examined(going_on)["source.position"]
        assert warned.severity == "warning"
        assert warned.found.endswith("the next capture goes on by capture.on_history_lost (restart_at_oldest)")
        assert show_offset(ctx).batch == batch
        set_desired_state(ctx, "stopped", by="ops", why=None)
        with pytest.raises(ConfigurationError, match="its oplog does not hold it"):
            alter_offset(ctx, str(ctx.tables.version(bronze_table("test")) - 1), by="ops", why=None)
        set_desired_state(ctx, "running", by="ops", why=None)

        too_early = pipeline(spark, server.uri, "shop", tmp_path / "early", start_at=began.isoformat())
        with pytest.raises(ConfigurationError, match=r"no longer has the history behind capture\.start_at"):
            run_capture(too_early, once=True)
        assert last_offset(too_early) is None, "a time that is corrected would change nothing"

        healing = pipeline(spark, server.uri, "shop", tmp_path / "heal", on_history_lost="heal")
        run_capture(healing, once=True)
        shop.a.insert_one({"_id": 101})
        run_capture(healing, once=True)
        run_silver(healing)
        assert_streamed_exactly_once(healing)
        assert_equal_to_source(healing, shop, "a", "b")
        with pytest.raises(ConfigurationError, match=r"offset of test expires in about \d+ minutes.*--force"):
            set_desired_state(healing, "stopped", by="ops", why=None)
        (gap,) = bronze(healing).where("op = 'gap'").collect()
        said = json.loads(gap["after"])
        assert (gap["operation_type"], said["from"], said["to"]) == ("heal", shown.resume_token, gap["resume_token"])
        assert (
            bronze(healing).where(f"operation_type = 'completed' AND snapshot_id = '{gap['snapshot_id']}'").count() == 1
        )

        run_capture(going_on, once=True)
        (gap,) = bronze(going_on).where("op = 'gap'").collect()
        assert (gap["operation_type"], gap["snapshot_id"]) == ("restart_at_oldest", None)
        shop.a.insert_one({"_id": 102})
        assert run_capture(going_on, once=True).events == 1
