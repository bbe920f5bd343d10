"""The oplog has rolled over: every loss has a gap row, and healing makes silver equal to the source."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from examined import examined
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, pipeline
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import Row, SparkSession

from strandline.errors import ConfigurationError, ResumePointLost
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import last_offset, oplog_reach, set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.silver.run_silver import run_silver
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


def assert_gaps_follow_each_other(ctx: JobContext, kind: str, token: str | None) -> Row:
    """Assert that each gap begins where the one before it ended, and the first at *token*. Return the last gap.

    There can be two: MongoDB may truncate its oplog past the oldest event just after capture has gone back to it.
    """
    gaps = bronze(ctx).where("op = 'gap'").orderBy("batch").collect()
    contents = [json.loads(gap["after"]) for gap in gaps]
    assert {gap["operation_type"] for gap in gaps} == {kind}
    assert [content["to"] for content in contents] == [gap["resume_token"] for gap in gaps]
    assert [content["from"] for content in contents] == [token, *(content["to"] for content in contents[:-1])]
    return gaps[-1]


@dataclass
class LostHistory:
    """A server whose oplog no longer reaches back to the offsets of three lakes."""

    spark: SparkSession
    uri: str
    shop: Database[dict[str, Any]]
    began: datetime
    folder: Path

    def lake(self, name: str, **capture: Any) -> JobContext:
        return pipeline(self.spark, self.uri, "shop", self.folder / name, **capture)


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LostHistory]:
    with EmbeddedMongod(oplog_size_mb=16) as server, Client(server.uri) as client:
        lost = LostHistory(spark, server.uri, client.shop, datetime.now(UTC), tmp_path_factory.mktemp("lost"))
        lost.shop.a.insert_many([{"_id": number, "n": 0} for number in range(30)])
        lost.shop.b.insert_many([{"_id": number} for number in range(5)])
        for name in ("stop", "heal", "restart"):
            run_capture(lost.lake(name), once=True)
        run_silver(lost.lake("heal"))
        lost.shop.a.delete_many({"_id": {"$lt": 10}})
        lost.shop.a.update_many({"_id": {"$gte": 20}}, {"$set": {"n": 1}})
        lost.shop.a.insert_one({"_id": 100})
        lost.shop.b.drop()
        roll_past(lost.lake("stop"), client)
        yield lost


# promise 3; scenario: G01, G06, G08
def test_a_lost_position_stops_capture_and_moves_no_offset(history: LostHistory) -> None:
    ctx = history.lake("stop")
    before = show_offset(ctx)
    assert "no longer has the history" in (before.warning or "")
    with pytest.raises(ResumePointLost, match=r"no longer has the history .*strandline offsets reset.*on_history_lost"):
        run_capture(ctx, once=True)
    assert show_offset(ctx).batch == before.batch
    set_desired_state(ctx, "stopped", by="ops", why=None)
    with pytest.raises(ConfigurationError, match="its oplog does not hold it"):
        alter_offset(ctx, str(ctx.tables.version(bronze_table("test")) - 1), by="ops", why=None)
    set_desired_state(ctx, "running", by="ops", why=None)


def test_doctor_says_that_a_position_is_lost_and_what_the_next_capture_does(history: LostHistory) -> None:
    lost = examined(history.lake("stop"))["source.position"]
    assert (lost.severity, lost.exit_code) == ("error", ResumePointLost.exit_code)
    assert "no longer has the history" in lost.found
    warning = examined(history.lake("stop", on_history_lost="restart_at_oldest"))["source.position"]
    assert warning.severity == "warning"
    assert warning.found.endswith("the next capture goes on by capture.on_history_lost (restart_at_oldest)")


# scenario: G13
def test_a_start_before_the_oldest_event_is_refused_and_stores_no_offset(history: LostHistory) -> None:
    ctx = history.lake("early", start_at=history.began.isoformat())
    with pytest.raises(ConfigurationError, match=r"no longer has the history behind capture\.start_at"):
        run_capture(ctx, once=True)
    assert last_offset(ctx) is None, "a time that is corrected would change nothing"


def test_a_start_of_one_collection_before_the_oldest_event_is_refused_with_the_two_ways_on(
    history: LostHistory,
) -> None:
    ctx = history.lake("early", starts={"shop.a": {"from": history.began.isoformat()}})
    ways = (
        r"behind capture\.starts\.shop\.a .*: its oplog begins at 2.* → choose a later time, or leave .*snapshot reads"
    )
    with pytest.raises(ConfigurationError, match=ways):
        run_capture(ctx, once=True)
    assert last_offset(ctx) is None


# promise 3; scenario: G01, A04
def test_heal_commits_a_gap_and_a_snapshot_after_which_silver_equals_the_source(history: LostHistory) -> None:
    ctx = history.lake("heal", on_history_lost="heal")
    before = show_offset(ctx)
    run_capture(ctx, once=True)
    history.shop.a.insert_one({"_id": 101})
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, history.shop, "a", "b")
    with pytest.raises(ConfigurationError, match=r"offset of test expires in about \d+ minutes.*--force"):
        set_desired_state(ctx, "stopped", by="ops", why=None)
    gap = assert_gaps_follow_each_other(ctx, "heal", before.resume_token)
    assert bronze(ctx).where(f"operation_type = 'completed' AND snapshot_id = '{gap['snapshot_id']}'").count() == 1


# promise 3; scenario: G01
def test_restart_at_oldest_commits_a_gap_without_a_snapshot_and_goes_on(history: LostHistory) -> None:
    ctx = history.lake("restart", on_history_lost="restart_at_oldest")
    before = show_offset(ctx)
    run_capture(ctx, once=True)
    assert assert_gaps_follow_each_other(ctx, "restart_at_oldest", before.resume_token)["snapshot_id"] is None
    history.shop.a.insert_one({"_id": 102})
    assert run_capture(ctx, once=True).events == 1
