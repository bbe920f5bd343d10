"""`maintain`: retention of control rows, and a bounded Delta log for tables that live for years."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from idle_lake import clean_up_logs, idle_copy
from lakehouse import bronze_writer
from pyspark.sql import functions as F

from bench.reads import ReadWatch
from strandline.bronze.bronze_properties import PROPERTIES
from strandline.bronze.offsets import committed
from strandline.control.cut_publication import open_cuts, publish
from strandline.control.cuts import Cut
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.file_maintenance import FileRetention, SparkFiles, set_retention
from strandline.io.tables.increments import rows_appended
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.maintenance.control_retention import Retention
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.offsets.show_offset import show_offset
from strandline.model import table_schemas as C
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import Lake, TableName
from strandline.quality.table_checks import DRIFT
from strandline.settings.configuration import LakeSettings, Settings
from strandline.settings.maintenance import MaintenanceSettings
from strandline.silver.compatibility import properties_of
from strandline.silver.progress import BronzeLog
from strandline.silver.silver_table import SilverTable

NOW = datetime(2026, 6, 1, tzinfo=UTC)
BRONZE = bronze_table("test")


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def fill(tables: Tables, table: TableName, ddl: str, *rows: dict[str, Any]) -> None:
    schema = schema_of(ddl)
    tables.create(table, schema)
    tables.append(
        table, tables.spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)
    )


def left(tables: Tables, table: TableName, *columns: str) -> list[Any]:
    rows = tables.read(table).select(*columns).collect()
    return sorted(tuple(row) if len(columns) > 1 else row[0] for row in rows)


def retained(tables: Tables, table: TableName, *columns: str, **settings: Any) -> tuple[int, list[Any]]:
    """Run the retention of one control table. Return the number of deleted rows, and the rows that are left."""
    count, _ = Retention(tables, MaintenanceSettings(**settings), NOW).run(table)
    return count, left(tables, table, *columns)


@pytest.mark.long
def test_of_old_cuts_the_newest_of_each_bronze_table_stays(tables: Tables) -> None:
    open_cuts(tables)
    for bronze, number, days in (("one", 1, 90), ("one", 2, 30), ("one", 3, 1), ("two", 1, 90), ("two", 2, 60)):
        publish(tables, Cut(number, bronze, number, None, None, (), {}, days_ago(days)))
    assert retained(tables, C.CUTS, "bronze", "cut") == (3, [("one", 3), ("two", 2)])


@pytest.mark.long
def test_notifications_of_thirty_days_and_results_of_ninety_stay(tables: Tables) -> None:
    notifications = [{"id": str(days), "timestamp": days_ago(days)} for days in (29, 31)]
    fill(tables, C.NOTIFICATIONS, C.NOTIFICATIONS_DDL, *notifications)
    fill(tables, C.RECONCILE, C.RECONCILE_DDL, *({"run_id": str(days), "at": days_ago(days)} for days in (89, 91)))
    assert retained(tables, C.NOTIFICATIONS, "id") == (1, ["29"])
    assert retained(tables, C.RECONCILE, "run_id") == (1, ["89"])


@pytest.mark.long
def test_an_open_dead_letter_stays_and_a_replayed_one_goes_thirty_days_later(tables: Tables) -> None:
    letters = (("open", 99, None), ("replayed", 99, 29), ("replayed", 99, 31), ("gone", 31, None))
    rows = [
        {"id": str(number), "status": status, "at": days_ago(at), "replayed_at": replayed and days_ago(replayed)}
        for number, (status, at, replayed) in enumerate(letters)
    ]
    fill(tables, C.DEAD_LETTERS, C.DEAD_LETTERS_DDL, *rows)
    assert retained(tables, C.DEAD_LETTERS, "id") == (2, ["0", "1"])


@pytest.mark.long
def test_a_signal_goes_once_it_is_old_and_in_bronze_and_no_file_or_other_source_holds_it(tables: Tables) -> None:
    signals = (
        ("done", "test", None),
        ("waits", "test", "table"),
        ("by file", "test", "file"),
        ("of another", "other", None),
    )
    fill(
        tables,
        C.SIGNALS,
        C.SIGNALS_DDL,
        {"id": "young", "source": "test", "at": days_ago(1)},
        *({"id": key, "source": source, "channel": channel, "at": days_ago(40)} for key, source, channel in signals),
        {"id": "of any", "at": days_ago(40)},
    )
    handled = [{"op": "signal", "snapshot_id": key} for key in ("young", "done", "by file", "of another", "of any")]
    fill(tables, BRONZE, C.BRONZE_DDL, *handled)
    assert retained(tables, C.SIGNALS, "id") == (2, ["by file", "of another", "waits", "young"])


@pytest.mark.long
def test_schema_changes_and_states_of_sources_stay_for_ever(tables: Tables) -> None:
    fill(tables, C.SCHEMA_CHANGES, C.SCHEMA_CHANGES_DDL, {"at": days_ago(999)})
    fill(tables, C.SOURCES, C.SOURCES_DDL, {"number": 1, "at": days_ago(999)})
    assert retained(tables, C.SCHEMA_CHANGES, "at")[0] == 0
    assert retained(tables, C.SOURCES, "number") == (0, [1])


@pytest.mark.long
def test_without_rows_to_delete_or_without_a_limit_retention_makes_no_commit(tables: Tables) -> None:
    fill(tables, C.RECONCILE, C.RECONCILE_DDL, *({"run_id": str(days), "at": days_ago(days)} for days in (89, 91)))
    assert retained(tables, C.RECONCILE, "run_id") == (1, ["89"])
    version = tables.version(C.RECONCILE)
    assert retained(tables, C.RECONCILE, "run_id") == (0, ["89"])
    for_ever = MaintenanceSettings(reconcile_retention_hours=None)
    assert Retention(tables, for_ever, NOW + timedelta(days=9999)).run(C.RECONCILE) == (0, "")
    assert tables.version(C.RECONCILE) == version


@pytest.mark.long
def test_quality_results_stay_as_far_back_as_the_next_run_compares(tables: Tables) -> None:
    def ran(
        days: int, suite: str, success: bool = True, expectation: str = "not_null", scope: str = "all"
    ) -> dict[str, Any]:
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


def commits_of(tables: Tables, log: Path, *, days: int, a_day: int) -> None:
    """Write commits like the native engine, every hundredth by Spark, with log files spread over the last *days*."""
    first, last = tables.version(BRONZE) + 1, days * a_day
    for version in range(first, last + 1):
        if version % 100 == 0:
            tables.set_properties(BRONZE, {"test.version": str(version)})
        else:
            now = time.time_ns() // 1_000_000
            info = {
                "timestamp": now,
                "operation": "WRITE",
                "operationParameters": {},
                "isBlindAppend": True,
                "operationMetrics": {},
            }
            actions: list[dict[str, Any]] = [
                {"commitInfo": info},
                {"txn": {"appId": "a", "version": version, "lastUpdated": now}},
            ]
            (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    for file in log.iterdir():
        number = file.name.lstrip(".")[:20]
        if number.isdigit():
            at = time.time() - (last - int(number)) / a_day * 86_400
            os.utime(file, (at, at))


@pytest.mark.skipif(sys.platform != "linux", reason="inotify, which counts the files that are read, is Linux's")
@pytest.mark.parametrize(
    ("days", "a_day", "maintenance", "hours"),
    [
        pytest.param(365, 2, {}, 168, marks=pytest.mark.long),
        # a commit each second has this ratio by default
        pytest.param(10, 150, {"log_max_files": 100}, 24, marks=pytest.mark.long),
    ],
    ids=["a year", "a busy table"],
)
def test_after_a_year_a_command_costs_what_it_cost_on_day_one(
    tables: Tables, lake: Any, days: int, a_day: int, maintenance: dict[str, Any], hours: int
) -> None:
    writer = bronze_writer(tables, "test", "me", lambda: time.time_ns() // 1000, native=True)
    writer.open("id", None)
    log = Path(lake.path(BRONZE)) / "_delta_log"

    def cost() -> tuple[int, int]:
        """Count log files read and log listings: find the offset, open, read and commit to the table, run `status`."""
        with ReadWatch(log) as reads:
            committed(tables, BRONZE)
            assert tables.read(BRONZE).where(F.col("batch").isNotNull()).count() > 0
            tables.set_properties(BRONZE, {"test.opened": str(time.time())})
            assert show_offset(context(tables)).batch == batch
        return len(reads.files), reads.listings

    batch = 0

    def heartbeats(through: int) -> None:
        nonlocal batch
        while tables.version(BRONZE) < through:
            batch += 1
            writer.commit([], batch=batch, resume_token=f'{{"_data": "82{batch:08X}"}}', snapshot_id=None)

    heartbeats(102)  # two commits after a checkpoint, as at the end
    files, listings = cost()
    assert files > 0 < listings
    commits_of(tables, log, days=days, a_day=a_day)
    newest = days * a_day
    assert len(list(log.glob("*.json"))) > newest
    heartbeats(newest + 10)

    run_maintain(context(tables, **maintenance))
    assert tables.properties(BRONZE)["delta.logRetentionDuration"] == f"interval {hours} hours"
    heartbeats(tables.version(BRONZE) + 101)  # a checkpoint is due, and older log files go with it
    writer._engine.table.upkeep.close()  # type: ignore[attr-defined]  # why: it is written beside the commits
    commits = len(list(log.glob("*.json")))
    assert commits <= (hours // 24 + 1) * a_day + 200, (
        "the commits of the retention, and those since the checkpoint before it"
    )
    DeltaTable(str(log.parent)).create_checkpoint()
    heartbeats(tables.version(BRONZE) + 2)  # two commits after a checkpoint, as at the beginning
    files_now, listings_now = cost()
    assert files_now <= 2 * files
    assert listings_now <= 2 * listings
    writer.close()


@pytest.mark.skipif(
    "SPARK_REMOTE" in os.environ, reason="logs are cleaned up through the JVM, and Spark Connect shows none"
)
@pytest.mark.parametrize(("days", "is_kept"), [(9, True), pytest.param(40, False, marks=pytest.mark.long)])
def test_commits_that_a_late_silver_has_not_read_stay_for_a_limited_time(
    tables: Tables, tmp_path: Path, days: int, is_kept: bool
) -> None:
    tables.create(BRONZE, schema_of(C.BRONZE_DDL), properties=PROPERTIES)
    schema = schema_of(C.BRONZE_DDL)
    for batch in (1, 2, 3):
        tables.append(
            BRONZE,
            tables.spark.createDataFrame([tuple(batch if name == "batch" else None for name in schema.names)], schema),
        )
    orders = SilverTable(tables, TableName("silver", "orders"))
    orders.open("shop.orders", "test")
    orders.set_progress(BronzeLog.of(tables, BRONZE).at(1), {})

    def later(name: str, of: Tables, days: int) -> Tables:
        idle_copy(Path(of.lake.root or ""), tmp_path / name, days=days)
        return Tables(tables.spark, Lake(root=str(tmp_path / name)))

    maintained = later("late", tables, days)
    run_maintain(context(maintained, tombstone_retention_hours=None))
    tomorrow = later("tomorrow", maintained, 1)
    clean_up_logs(tables.spark, tmp_path / "tomorrow")
    run_maintain(context(tomorrow, tombstone_retention_hours=None))
    read = sorted(row["batch"] for row in rows_appended(tomorrow, BRONZE, 2, tomorrow.version(BRONZE)).collect())
    assert read == ([2, 3] if is_kept else [1, 2, 3]), "only the changes, or all rows"


@pytest.mark.long
def test_a_busy_table_keeps_a_shorter_log_unless_silver_is_late(tables: Tables, lake: Any) -> None:
    tables.create(BRONZE, schema_of(C.BRONZE_DDL), properties=PROPERTIES)
    for number in range(6):
        tables.set_properties(BRONZE, {"test.number": str(number)})

    notes: list[str] = []

    def kept(**maintenance: Any) -> tuple[str, str]:
        (done,) = [
            done
            for done in run_maintain(context(tables, tombstone_retention_hours=None, **maintenance))
            if done.table == str(BRONZE)
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
        for version in (0, 1):  # Delta lets no commit be older than the one before it
            file = Path(lake.path(BRONZE)) / "_delta_log" / f"{version:020}.json"
            os.utime(file, (time.time() - hours * 3600,) * 2)

    orders = SilverTable(tables, TableName("silver", "orders"))
    orders.open("shop.orders", "test")
    orders.set_progress(BronzeLog.of(tables, BRONZE).at(0), {})
    open_cuts(tables)
    silver_is_behind_by(30)
    assert kept() == ("interval 168 hours", "interval 168 hours")
    assert set(notes) == {""}
    assert kept(log_max_files=1) == ("interval 96 hours", "interval 96 hours")
    silver_is_behind_by(300)
    assert kept(log_max_files=1) == ("interval 360 hours", "interval 360 hours")
    assert notes[-1] == "silver.orders has not read it for 300 hours: its files and its log are kept for 360 hours"
    silver_is_behind_by(721)
    assert kept(log_max_files=1) == ("interval 24 hours", "interval 24 hours"), (
        "an abandoned silver table keeps nothing"
    )
    assert notes[-1] == ""
    assert tables.properties(C.CUTS)["delta.logRetentionDuration"] == "interval 24 hours"


def test_without_spark_vacuum_removes_what_left_the_table_before_its_retention(tables: Tables, tmp_path: Path) -> None:
    orders = TableName("silver", "orders")
    tables.create(orders, schema_of("_key STRING, _position STRING, total INT"), properties=properties_of("portable"))

    def change(of: Tables, statement: str) -> None:
        of.spark.sql(statement.format(of.lake.sql(orders)))

    change(tables, "INSERT INTO {} VALUES ('a', '1', 0), ('b', '2', 0)")
    change(tables, "UPDATE {} SET total = 1")
    idle_copy(Path(tables.lake.root or ""), tmp_path / "idle", days=9)
    later = Tables(tables.spark, Lake(root=str(tmp_path / "idle")))
    change(later, "UPDATE {} SET total = 2")
    folder, newest = Path(later.lake.path(orders)), later.version(orders)
    (folder / "of-a-killed-task.parquet").write_bytes(b"PAR1")
    os.utime(folder / "of-a-killed-task.parquet", (time.time() - 9 * 86_400,) * 2)
    written = {file.name for file in folder.glob("**/*.parquet")}
    log_file = folder / "_delta_log" / f"{newest:020}.json"

    direct = DeltaRsTables(later.lake)
    assert direct.can_write(orders)
    files = SparkFiles(later, orders, direct)
    set_retention(later, orders, FileRetention(168, 168))
    before = files.count()
    files.vacuum()
    gone = written - {file.name for file in folder.glob("**/*.parquet")}
    assert len(gone) == 5, "two of the first version, two of its change feed, one of a killed task"
    assert files.count() == before == later.detail(orders)["numFiles"]
    spark = later.spark
    assert spark.sql(f"SELECT sum(total) FROM {later.lake.sql(orders)}").first() == (4,)
    removed = [json.loads(line).get("remove") for line in log_file.read_text().splitlines()]
    kept = [folder / action["path"] for action in removed if action]
    assert kept
    assert all(file.exists() for file in kept), "they are nine days old, and left the table just now"
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", newest)
    assert feed.load(str(folder)).count() == 4
