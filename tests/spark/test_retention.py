"""What `maintain` deletes of control tables, and what it leaves; and that the log of a table does not grow with the years."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from bench.reads import ReadWatch
from pipelines.bronze.offsets import committed
from pipelines.bronze.writer import PROPERTIES, BronzeWriter
from pipelines.control.cuts import Cut, publish
from pipelines.io.tables import Tables, schema_of
from pipelines.jobs.context import JobContext
from pipelines.jobs.maintain import run_maintain
from pipelines.jobs.retention import Retention
from pipelines.maintenance_settings import MaintenanceSettings
from pipelines.model import columns as C
from pipelines.model.columns import bronze_table
from pipelines.model.tables import TableName
from pipelines.quality.table_checks import DRIFT
from pipelines.settings import LakeSettings, Settings
from pipelines.silver.incarnations import Incarnations
from pipelines.silver.typed_table import Progress
from pipelines.silver.writer import SilverTable

NOW = datetime(2026, 6, 1, tzinfo=UTC)
BRONZE = bronze_table("test")


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def fill(tables: Tables, table: TableName, ddl: str, *rows: dict[str, Any]) -> None:
    schema = schema_of(ddl)
    tables.create(table, schema)
    tables.append(table, tables.spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema))


def left(tables: Tables, table: TableName, *columns: str) -> list[Any]:
    rows = tables.read(table).select(*columns).collect()
    return sorted(tuple(row) if len(columns) > 1 else row[0] for row in rows)


def test_old_rows_of_control_tables_go_and_what_is_needed_stays(tables: Tables) -> None:
    for bronze, number, days in (("one", 1, 90), ("one", 2, 30), ("one", 3, 1), ("two", 1, 90), ("two", 2, 60)):
        publish(tables, Cut(number, bronze, number, None, None, (), {}, days_ago(days)))
    fill(tables, C.NOTIFICATIONS, C.NOTIFICATIONS_DDL, *({"id": str(days), "timestamp": days_ago(days)} for days in (29, 31)))
    fill(tables, C.RECONCILE, C.RECONCILE_DDL, *({"run_id": str(days), "at": days_ago(days)} for days in (89, 91)))
    letters = (("open", 99, None), ("replayed", 99, 29), ("replayed", 99, 31), ("gone", 31, None))
    fill(
        tables,
        C.DEAD_LETTERS,
        C.DEAD_LETTERS_DDL,
        *(
            {"id": str(number), "status": status, "at": days_ago(at), "replayed_at": replayed and days_ago(replayed)}
            for number, (status, at, replayed) in enumerate(letters)
        ),
    )
    signals = (("done", "test", None), ("waits", "test", "table"), ("by file", "test", "file"), ("of another", "other", None))
    fill(
        tables,
        C.SIGNALS,
        C.SIGNALS_DDL,
        {"id": "young", "source": "test", "at": days_ago(1)},
        *({"id": key, "source": source, "channel": channel, "at": days_ago(40)} for key, source, channel in signals),
        {"id": "of any", "at": days_ago(40)},
    )
    acted = [{"op": "signal", "snapshot_id": key} for key in ("young", "done", "by file", "of another", "of any")]
    fill(tables, BRONZE, C.BRONZE_DDL, *acted)
    fill(tables, C.SCHEMA_CHANGES, C.SCHEMA_CHANGES_DDL, {"at": days_ago(999)})
    fill(tables, C.SOURCES, C.SOURCES_DDL, {"number": 1, "at": days_ago(999)})

    retention = Retention(tables, MaintenanceSettings(), NOW)
    removed = {name.name: retention.run(name)[0] for name in tables.names("control")}
    assert removed == {
        **{"cuts": 3, "dead_letters": 2, "notifications": 1, "reconcile": 1, "signals": 2},
        **{"schema_changes": 0, "sources": 0},
    }
    assert left(tables, C.CUTS, "bronze", "cut") == [("one", 3), ("two", 2)]
    assert left(tables, C.NOTIFICATIONS, "id") == ["29"]
    assert left(tables, C.RECONCILE, "run_id") == ["89"]
    assert left(tables, C.DEAD_LETTERS, "id") == ["0", "1"]
    assert left(tables, C.SIGNALS, "id") == ["by file", "of another", "waits", "young"]

    versions = {name: tables.version(name) for name in tables.names("control")}
    assert {retention.run(name) for name in versions} == {(0, "")}
    assert {name: tables.version(name) for name in versions} == versions, "nothing to delete is no commit"
    for_ever = MaintenanceSettings(
        **{f"{name}_retention_hours": None for name in ("cuts", "notifications", "signals", "dead_letters", "quality", "reconcile")}
    )
    assert {Retention(tables, for_ever, NOW + timedelta(days=9999)).run(name) for name in versions} == {(0, "")}


def test_results_of_quality_runs_stay_as_far_back_as_the_next_run_looks(tables: Tables) -> None:
    def ran(days: int, suite: str, success: bool = True, expectation: str = "not_null", scope: str = "all") -> dict[str, Any]:
        named = {"table": f"silver.{suite}", "suite": suite, "expectation": expectation, "scope": scope}
        return {**named, "run_id": str(days), "ran_at": days_ago(days), "success": success}

    fill(
        tables,
        C.QUALITY,
        C.QUALITY_DDL,
        *(ran(days, "a") for days in (1, 80, 100, 200)),
        *(ran(days, "old") for days in (300, 400)),
        ran(200, "old", scope="quarantined"),
        *(ran(days, "drifts", days >= 150, DRIFT) for days in (1, 100, 150, 200)),
        *(ran(days, "drifts") for days in (1, 100, 150, 200)),
    )
    assert Retention(tables, MaintenanceSettings(), NOW).run(C.QUALITY) == (5, "")
    assert left(tables, C.QUALITY, "suite", "run_id") == [
        *(("a", "1"), ("a", "80")),
        *(("drifts", days) for days in ("1", "1", "100", "100", "150", "150")),
        *(("old", "200"), ("old", "300")),
    ]


def context(tables: Tables, **maintenance: Any) -> JobContext:
    settings = Settings(
        source={"name": "test"},  # type: ignore[arg-type]  # why: pydantic builds the section
        lake=LakeSettings(root=tables.lake.root),
        maintenance=MaintenanceSettings(**maintenance),
    )
    return JobContext(settings, tables.spark, tables)


def a_year_of_commits(tables: Tables, log: Path, *, a_day: int) -> None:
    """Commits as the native engine makes them, each hundredth by Spark, over 365 days that end now. The log's files are as old."""
    first, last = tables.version(BRONZE) + 1, 365 * a_day
    for version in range(first, last + 1):
        if version % 100 == 0:
            tables.set_properties(BRONZE, {"test.version": str(version)})
        else:
            now = time.time_ns() // 1_000_000
            info = {"timestamp": now, "operation": "WRITE", "operationParameters": {}, "isBlindAppend": True, "operationMetrics": {}}
            actions: list[dict[str, Any]] = [{"commitInfo": info}, {"txn": {"appId": "a", "version": version, "lastUpdated": now}}]
            (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    for file in log.iterdir():
        number = file.name.lstrip(".")[:20]
        if number.isdigit():
            at = time.time() - (last - int(number)) / a_day * 86_400
            os.utime(file, (at, at))


@pytest.mark.skipif(sys.platform != "linux", reason="inotify, which counts the files that are read, is Linux's")
def test_the_log_of_a_year_is_no_longer_than_that_of_some_days(tables: Tables, lake: Any) -> None:
    writer = BronzeWriter(tables, "test", "me", lambda: time.time_ns() // 1000, native_workers=1)
    writer.open("id", None)
    log = Path(lake.path(BRONZE)) / "_delta_log"

    def files_read() -> int:
        """By what every verb does: find the position, open the table, read it, commit to it."""
        with ReadWatch(log) as reads:
            committed(tables, BRONZE)
            assert tables.read(BRONZE).where(F.col("batch").isNotNull()).count() > 0
            tables.set_properties(BRONZE, {"test.opened": str(time.time())})
        return len(reads.files)

    batch = 0

    def heartbeats(through: int) -> None:
        nonlocal batch
        while tables.version(BRONZE) < through:
            batch += 1
            writer.commit([], batch=batch, resume_token=f'{{"_data": "82{batch:08X}"}}', snapshot_id=None)

    heartbeats(102)  # two commits after a checkpoint, as at the end
    on_day_one = files_read()
    a_year_of_commits(tables, log, a_day=4)
    assert len(list(log.glob("*.json"))) > 1460
    heartbeats(1470)

    run_maintain(context(tables))
    assert tables.properties(BRONZE)["delta.logRetentionDuration"] == "interval 168 hours"
    heartbeats(1502)  # Spark makes commit 1500 and its checkpoint, and removes what is older
    versions = sorted(int(file.stem) for file in log.glob("*.json"))
    assert versions[0] >= 1400, "of the year there are eight days left, from the checkpoint before them on"
    assert files_read() <= 2 * on_day_one
    writer.close()


def test_a_busy_tables_log_goes_back_for_fewer_days_unless_silver_is_late(tables: Tables, lake: Any) -> None:
    tables.create(BRONZE, schema_of(C.BRONZE_DDL), properties=PROPERTIES)
    for number in range(6):
        tables.set_properties(BRONZE, {"test.number": str(number)})

    notes: list[str] = []

    def kept(**maintenance: Any) -> tuple[str, str]:
        (done,) = [
            done for done in run_maintain(context(tables, tombstone_retention_hours=None, **maintenance)) if done.table == str(BRONZE)
        ]
        notes.append(done.note)
        found = tables.properties(BRONZE)
        return found["delta.deletedFileRetentionDuration"], found["delta.logRetentionDuration"]

    assert kept() == ("interval 168 hours", "interval 168 hours")
    assert kept(log_retention_hours=720) == ("interval 168 hours", "interval 720 hours")
    assert kept(log_max_files=1) == ("interval 24 hours", "interval 24 hours")
    assert kept(log_max_files=1, max_downtime_hours=48) == ("interval 48 hours", "interval 48 hours")
    assert kept(log_max_files=None) == ("interval 168 hours", "interval 168 hours")

    def silver_is_behind_by(hours: int) -> None:
        for version in (0, 1):  # Delta takes no commit for older than the one before
            file = Path(lake.path(BRONZE)) / "_delta_log" / f"{version:020}.json"
            os.utime(file, (time.time() - hours * 3600,) * 2)

    orders = SilverTable(tables, TableName("silver", "orders"))
    orders.open("shop.orders", "test")
    orders.advance(Progress(tables.id(BRONZE), 0), Incarnations())
    silver_is_behind_by(30)
    assert kept(log_max_files=1) == ("interval 168 hours", "interval 168 hours")
    assert set(notes) == {""}
    silver_is_behind_by(300)
    assert kept(log_max_files=1) == ("interval 360 hours", "interval 360 hours")
    assert notes[-1] == "silver.orders has not read it for more than 168 hours: no file is removed"
