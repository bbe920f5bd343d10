"""Steps that commands show while they run: each long one has a name, a total, and an end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lakehouse import pipeline, settings_for
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.io.telemetry.progress import PROGRESS, Step
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.gold.refresh import refresh_gold
from strandline.jobs.lake_opener import LakeOpener
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.reconcile.run_reconcile import run_reconcile
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver

Db = Database[dict[str, Any]]


class Record:
    """Display that keeps every step, and those that are at work."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.at_work: list[Step] = []

    def begin(self, step: Step) -> None:
        self.steps.append(step)
        self.at_work.append(step)

    def end(self, step: Step) -> None:
        self.at_work.remove(step)

    def take(self) -> dict[str, tuple[int, int | None]]:
        """Return count and total of each step since the last call, by name. None of them is at work any more."""
        assert self.at_work == []
        steps, self.steps = self.steps, []
        return {step.name: (step.count, step.total) for step in steps}


@pytest.fixture
def display() -> Iterator[Record]:
    PROGRESS.display = record = Record()
    yield record
    PROGRESS.display = None


def test_capture_and_silver_show_chunks_events_and_tables(
    mongo_uri: str, database: Db, tmp_path: Path, display: Record
) -> None:
    for name in ("orders", "people"):
        database[name].insert_many([{"_id": number} for number in range(30)])
    lake = LakeOpener(settings_for(mongo_uri, database.name, tmp_path / "lake"))
    run_capture(lake.for_capture(), once=True)
    shown = {step.name: step.item for step in display.steps}
    assert display.take() == {"change stream": (0, None), "snapshot": (2, 2)}
    assert shown["snapshot"].startswith("60 documents, ")
    database["orders"].insert_many([{"_id": number} for number in range(100, 107)])
    run_capture(lake.for_capture(), once=True)
    (stream,) = display.steps
    assert stream.item.startswith("changes of 20")
    assert display.take() == {"change stream": (7, None)}
    run_silver(lake.for_silver())
    assert display.take()["silver"] == (2, 2)
    run_silver(lake.for_silver())
    assert display.take() == {}, "nothing to do is no step"


@pytest.mark.parametrize("what", ["documents", "events"])
def test_an_error_of_the_caller_ends_the_run_at_once_and_every_step(
    mongo_uri: str, database: Db, tmp_path: Path, display: Record, what: str
) -> None:
    database["orders"].insert_one({"_id": 1})
    lake = LakeOpener(settings_for(mongo_uri, database.name, tmp_path / "lake"))
    reports: list[tuple[str, int]] = []

    def refuse(reported: str, count: int) -> None:
        reports.append((reported, count))
        if reported == what:
            raise ZeroDivisionError(reported, count)

    with pytest.raises(ZeroDivisionError):
        run_capture(lake.for_capture(), once=True, report=refuse)
    assert [reported for reported, _ in reports].count(what) == 1
    display.take()
    result = run_capture(lake.for_capture(), once=True)
    assert result.documents == 0, "the chunk was committed before its report"


def test_every_long_command_shows_its_steps(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, display: Record
) -> None:
    database["orders"].insert_one({"_id": 1})
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    run_capture(ctx, once=True)
    run_silver(ctx)
    gold = tmp_path / "gold"
    gold.mkdir()
    (gold / "days.sql").write_text("-- materialized: table\nselect _id from silver.orders", encoding="utf-8")
    display.take()
    settings = ctx.settings.model_copy(update={"gold": ctx.settings.gold.model_copy(update={"sql_dir": str(gold)})})
    refresh_gold(type(ctx)(settings, spark, ctx.tables))
    assert display.take() == {"gold": (1, 1)}
    run_reconcile(ctx, typed=True)
    compared = ("reading the source", "comparing silver", "comparing columns")
    assert display.take() == dict.fromkeys(compared, (1, 1))
    run_maintain(ctx)
    count, total = display.take()["maintain"]
    assert count == total
    assert count > 3
    set_desired_state(ctx, "stopped", by="test", why=None, force=True)
    run_rebuild(ctx, "silver.orders")
    assert display.take() == {"rebuild": (0, None)}
