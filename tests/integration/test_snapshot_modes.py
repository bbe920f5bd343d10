"""Snapshot modes: when existing documents are read, and which ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lakehouse import assert_equal_to_source, bronze, pipeline, spark_pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession
from snapshotters import Always, install

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.chunk_task import ChunkReader
from strandline.jobs.snapshot.report import list_snapshots, verify_snapshot
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.model.table_schemas import NOTIFICATIONS

Db = Database[dict[str, Any]]
_DIVIDES = '{"$expr": {"$gt": [{"$divide": [1, "$n"]}, 0]}}'
"""A valid query that fails for documents with n = 0."""


# scenario: A04, A07
@pytest.mark.long
def test_always_reads_at_every_start_and_retires_what_is_gone(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, snapshot_mode="always", snapshot_max_threads=4)
    for name in ("a", "b", "c"):
        database[name].insert_many([{"_id": f"{name}{number}"} for number in range(5)])
    assert run_capture(ctx, once=True).documents == 15
    assert bronze(ctx).where("op = 'r' AND NOT startswith(key, concat('\"', collection))").count() == 0
    run_silver(ctx)
    database.a.delete_one({"_id": "a1"})
    database.b.insert_one({"_id": "b9"})
    assert run_capture(ctx, once=True).documents == 15
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "b", "c")
    assert [(state.state, state.collections, state.landed, state.documents) for state in list_snapshots(ctx)] == [
        ("completed", 3, 3, 15)
    ] * 2
    assert [check.holds for check in verify_snapshot(ctx)] == [True] * 3
    with pytest.raises(ConfigurationError, match="there is no snapshot other"):
        verify_snapshot(ctx, "other")


# scenario: A03, A05, A06
def test_only_what_is_asked_for_is_read_and_what_follows_is_streamed(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.a.insert_many([{"_id": number, "n": number % 2} for number in range(6)])
    database.b.insert_many([{"_id": number} for number in range(6)])
    queries = {f"{database.name}.a": '{"$or": [{"_id": {"$gt": 4}}, {"n": 0}]}'}
    some = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path / "some",
        snapshot_include_collection_list=[f"{database.name}\\.a"],
        snapshot_collection_filter_overrides=queries,
        snapshot_chunk_size=2,
        snapshot_fetch_size=1,
    )
    none = pipeline(spark, mongo_uri, database.name, tmp_path / "none", snapshot_mode="no_data")
    only = pipeline(spark, mongo_uri, database.name, tmp_path / "only", snapshot_mode="initial_only")
    assert [run_capture(ctx, once=True).documents for ctx in (some, none)] == [4, 0]
    assert run_capture(only).documents == 12  # ends by itself
    database.a.insert_one({"_id": 1.5, "n": 1})
    database.b.insert_one({"_id": 9})
    assert [run_capture(ctx, once=True).events for ctx in (some, none)] == [2, 2]
    assert sorted(row["key"] for row in bronze(some).where("op = 'r'").collect()) == ["0", "2", "4", "5"]

    # what fails for good is no failed attempt: told when the snapshot is planned, or by the chunk that meets it
    for number, (query, why) in enumerate(
        (('{"n": {"$near": 1}}', f"filter for {database.name}.a is refused"), (_DIVIDES, "reading .*a"))
    ):
        bad = {"snapshot_collection_filter_overrides": {f"{database.name}.a": query}}
        with pytest.raises(ConfigurationError, match=why):
            run_capture(spark_pipeline(spark, mongo_uri, database.name, tmp_path / f"bad {number}", **bad), once=True)


def test_a_snapshotter_and_the_notifications_are_told_once_how_a_snapshot_ended(
    spark: SparkSession,
    mongo_uri: str,
    database: Db,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    install(tmp_path / "site", monkeypatch)
    told: list[str] = []
    monkeypatch.setattr(Always, "told", told)
    custom = {
        "snapshot_mode": "custom",
        "snapshot_mode_custom_name": "always",
        "notification_enabled_channels": ("table",),
    }
    database.a.insert_many([{"_id": number} for number in range(5)])
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake", **custom)
    assert run_capture(ctx, once=True).documents == 5
    assert told == ["completed"]

    send_signal(ctx, "stop-snapshot", {"type": "blocking"}, by="ops")  # it is acted upon while the lanes wait
    later = pipeline(spark, mongo_uri, database.name, tmp_path / "lake", snapshot_delay_ms=60_000, **custom)
    assert run_capture(later, once=True).documents == 0
    assert told == ["completed", "aborted"]
    assert "snapshot_aborted of the snapshotter always failed: LookupError: no pager" in caplog.text
    kinds = [row["type"] for row in ctx.tables.read(NOTIFICATIONS).orderBy("timestamp").collect()]
    assert [kind for kind in kinds if kind in ("COMPLETED", "ABORTED")] == ["COMPLETED", "ABORTED"]

    silent = custom | {"snapshot_mode_custom_name": "once"}
    assert (
        run_capture(pipeline(spark, mongo_uri, database.name, tmp_path / "other", **silent), once=True).documents == 5
    )


def test_the_driver_reads_a_snapshot(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker imports its own `ChunkReader`, so a read that is seen here was made here."""
    database.a.insert_many([{"_id": number} for number in range(50)])
    read_here, read = [], ChunkReader.__call__

    def seen(self: ChunkReader) -> Iterator[pa.RecordBatch]:
        read_here.append(self.range)
        return read(self)

    monkeypatch.setattr(ChunkReader, "__call__", seen)
    options = {"snapshot_reader": "driver", "snapshot_chunk_size": 20}
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path, **options)
    assert run_capture(ctx, once=True).documents == 50
    (check,) = verify_snapshot(ctx)
    assert check.holds
    assert len(read_here) == check.chunks > 1
