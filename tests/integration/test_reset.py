"""A reset of the offset says what it skips, and the gap stays in `status` until a snapshot has read everything."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from lakehouse import settings_for
from pymongo.database import Database

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import OffsetMove, reset_offset
from strandline.jobs.offsets.show_offset import show_offset
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table

Db = Database[dict[str, Any]]


def context(uri: str, database: Db, root: Path, **capture: Any) -> DeltaRsContext:
    ctx = open_capture_without_spark(settings_for(uri, database.name, root, **capture))
    assert ctx is not None
    return ctx


def reset(ctx: DeltaRsContext) -> OffsetMove:
    set_desired_state(ctx, "stopped", by="ops", why=None)
    move = reset_offset(ctx, by="ops", why="a test")
    set_desired_state(ctx, "running", by="ops", why=None)
    return move


def gap_rows(ctx: DeltaRsContext) -> list[dict[str, Any]]:
    return ctx.tables.query(
        Query(bronze_table("test")).select("operation_type", "snapshot_id", "after").where(("op", "=", "gap"))
    )


# promise 3
def test_a_reset_without_a_snapshot_counts_what_it_skips_and_leaves_a_gap_that_status_shows(
    mongo_uri: str, database: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = context(mongo_uri, database, tmp_path, snapshot_mode="no_data")
    database.a.insert_one({"_id": 0})
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    assert show_offset(ctx).gap is None
    database.a.insert_many([{"_id": 2}, {"_id": 3}])

    move = reset(ctx)
    assert (move.snapshot, move.skipped) == ("none", 2)
    assert "no collection is read again" in move.summary()
    assert "2 changes until now" in move.summary()
    assert "to the start of the next capture will be missing" in (show_offset(ctx).gap or "")

    with caplog.at_level(logging.WARNING, "strandline.capture"):
        run_capture(ctx, once=True)
    assert "changes since the last captured event are missing" in caplog.text
    (gap,) = gap_rows(ctx)
    assert (gap["operation_type"], gap["snapshot_id"]) == ("reset", None)
    assert {"from", "to", "after", "before"} <= set(json.loads(gap["after"]))
    assert "changes of any collection are missing from" in (show_offset(ctx).gap or "")
    run_capture(ctx, once=True)
    assert len(gap_rows(ctx)) == 1


def test_a_reset_with_a_snapshot_of_everything_skips_nothing(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = context(mongo_uri, database, tmp_path)
    database.a.insert_one({"_id": 0})
    run_capture(ctx, once=True)
    move = reset(ctx)
    assert (move.snapshot, move.skipped) == ("all", None)
    assert "a snapshot reads every collection again" in move.summary()
    assert run_capture(ctx, once=True).documents == 1
    (gap,) = gap_rows(ctx)
    assert gap["operation_type"] == "reset"
    assert gap["snapshot_id"] is not None


def test_a_reset_whose_snapshot_leaves_collections_out_says_so(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    ctx = context(mongo_uri, database, tmp_path, snapshot_include_collection_list=(rf"{database.name}\.a",))
    database.a.insert_one({"_id": 0})
    database.b.insert_one({"_id": 0})
    run_capture(ctx, once=True)
    database.b.insert_one({"_id": 1})
    move = reset(ctx)
    assert (move.snapshot, move.skipped) == ("some", 1)
    assert "some collections are not read again" in move.summary()
