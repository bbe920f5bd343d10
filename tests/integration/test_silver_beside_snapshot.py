"""``run --once`` merges the first chunks of a snapshot while the others are read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from lakehouse import settings_for
from pymongo.database import Database
from spark_refused import WITHOUT_SPARK, SparkIsNeeded, lake_without_spark

from strandline.jobs import run as job
from strandline.jobs.lake_context import LazyContext, open_silver_without_spark
from strandline.jobs.run import RunResult, run_once
from strandline.jobs.silver.collection import SilverResult
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
pytestmark = WITHOUT_SPARK
_WAIT_SECONDS = 60


class Run:
    """A run whose snapshot waits after its first chunks until silver has merged some, or has given up."""

    def __init__(self, ctx: LazyContext, database: Db) -> None:
        self.ctx, self.database = ctx, database
        self.chunks = 0
        self.merged = threading.Event()
        self.tables: list[str] = []

    def report(self, what: str, _rows: int) -> None:
        if what != "documents":
            return
        self.chunks += 1
        if self.chunks == 2:
            assert self.merged.wait(_WAIT_SECONDS), "silver waits for the end of the snapshot"
            self.database.a.update_one({"_id": 0}, {"$set": {"n": "changed"}})
            self.database.a.delete_one({"_id": 1})
            self.database.a.delete_one({"_id": 599})

    def silver_report(self, result: SilverResult) -> None:
        self.tables.append(str(result.table))
        self.merged.set()

    def once(self) -> RunResult:
        opened = open_silver_without_spark(self.ctx.settings)
        assert opened is not None
        return run_once(opened.for_capture(), lambda: self.ctx, report=self.report, silver_report=self.silver_report)


@pytest.fixture
def run(mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(job, "_DOCUMENTS_AT_ONCE", 100)
    settings = settings_for(mongo_uri, database.name, tmp_path / "lake", snapshot_chunk_size=100)
    database.a.insert_many([{"_id": number, "n": number} for number in range(600)])
    return Run(lake_without_spark(settings), database)


# promise 2
def test_chunks_merged_while_the_snapshot_is_read_give_silver_equal_to_the_source(run: Run, database: Db) -> None:
    result = run.once()
    assert run.tables[:2] == ["silver.a", "silver.a"]
    (merged,) = result.silver
    rows = run.ctx.tables.folder(TableName("silver", "a")).table().to_pyarrow_table().to_pylist()
    live = [row["_document"] for row in rows if not row["_deleted"]]
    assert sorted(live) == sorted(bson.encode(document) for document in database.a.find())
    assert merged.inserted == len(rows)


def test_a_batch_that_needs_spark_waits_for_the_end_of_the_snapshot(run: Run, database: Db) -> None:
    damaged = range(0, 600, 20)  # in every chunk: any of them may be the first in bronze
    database.a.delete_many({"_id": {"$in": list(damaged)}})
    for number in damaged:
        document = bson.encode({"_id": number, "text": "XXXX"}).replace(b"XXXX", b"\xff\xfe\xfd\xfc")
        database.a.insert_one(RawBSONDocument(document))  # no JSON shows it
    run.merged.set()
    with pytest.raises(SparkIsNeeded):
        run.once()
    assert run.chunks >= 6
    assert run.tables == []
