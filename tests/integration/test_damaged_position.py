"""An unusable committed offset counts as lost history, and the recovery commands still work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from examined import examined
from lakehouse import assert_equal_to_source, bronze, bronze_writer, pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.errors import ResumePointLost, StrandlineError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset, reset_offset
from strandline.jobs.offsets.show_offset import offset_history, show_offset
from strandline.jobs.operations.metrics import exposition
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import bronze_table

Db = Database[dict[str, Any]]
UNREADABLE = ("garbage", "{}")
REFUSED_BY_SERVER = ('{"_data": "0"}',)
IN_THE_FUTURE = '{"_data": "zzzz"}'


def commit_position(ctx: JobContext, token: str, last_event: str | None = None) -> None:
    writer = bronze_writer(ctx.tables, "test", "damaged")
    last = writer.open(ctx.tables.properties(bronze_table("test"))["strandline.deployment"], None)
    assert last is not None
    writer.commit([], batch=last.batch + 1, resume_token=token, snapshot_id=None, last_event=last_event)


# promise 3; scenario: G05
@pytest.mark.long
def test_a_position_that_cannot_be_used_stops_a_capture_in_one_line_and_no_verb_breaks(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 3})
    for damaged in (*UNREADABLE, *REFUSED_BY_SERVER, IN_THE_FUTURE):
        commit_position(ctx, damaged)
        with pytest.raises(ResumePointLost, match=r"offsets reset.*on_history_lost: heal") as lost:
            run_capture(ctx, once=True)
        assert len(str(lost.value)) < 400
        shown = show_offset(ctx)
        assert (shown.resume_token, shown.position_at) == (damaged, None)
        assert "offsets reset" in (shown.warning or "")
        if damaged in UNREADABLE:
            assert "cannot be read" in (shown.warning or "")
        assert examined(ctx)["source.position"].exit_code == ResumePointLost.exit_code

    for damaged in ("garbage", IN_THE_FUTURE):
        commit_position(ctx, damaged)
        assert "strandline_batch" in exposition(ctx)
        assert offset_history(ctx, 1)[0].resume_token == damaged
        run_silver(ctx)
        with pytest.raises(StrandlineError):
            run_reconcile(ctx, wait_seconds=1)
        set_desired_state(ctx, "stopped", by="ops", why=None)
        assert reset_offset(ctx, by="ops", why=None, dry_run=True).from_token == damaged
        move = alter_offset(ctx, "now", by="ops", why="it is damaged", dry_run=damaged == "garbage")
        assert (move.direction, move.from_token, move.events) == ("forward", damaged, 1)
        set_desired_state(ctx, "running", by="ops", why=None)
    run_capture(ctx, once=True)
    assert bronze(ctx).where("op = 'gap' AND operation_type = 'altered'").count() == 1


# promise 3
@pytest.mark.parametrize(
    ("damaged", "last_event"),
    [
        ("garbage", None),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in ((IN_THE_FUTURE, None), (None, "no hex"), (REFUSED_BY_SERVER[0], None))
        ),
    ],
)
def test_heal_recovers_from_every_kind_of_damaged_position(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, damaged: str | None, last_event: str | None
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, on_history_lost="heal")
    database.a.insert_many([{"_id": 1}, {"_id": 2}])
    run_capture(ctx, once=True)
    run_silver(ctx)
    database.a.delete_one({"_id": 1})
    commit_position(ctx, damaged or show_offset(ctx).resume_token or "", last_event)
    assert run_capture(ctx, once=True).documents == 1
    database.a.insert_one({"_id": 3})
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert [row["operation_type"] for row in bronze(ctx).where("op = 'gap'").collect()] == ["heal"]
