"""Concurrent silver runs over one table whose documents bring new fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, land, pipeline, silver
from pymongo.database import Database
from pyspark.sql import DataFrame, SparkSession

from pipelines.jobs.capture.job import run_capture
from pipelines.jobs.silver import collection as silver_collection
from pipelines.jobs.silver.job import run_silver
from pipelines.model.tables import TableName
from pipelines.silver.batch_profile import BatchProfile, profile_batch
from pipelines.silver.silver_table import SilverTable


# scenario: Q06, E03
@pytest.mark.long
def test_a_run_that_is_overtaken_keeps_the_columns_that_the_other_one_made(
    spark: SparkSession, mongo_uri: str, database: Database[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.a.insert_one({"_id": 1})
    land(ctx)
    database.a.insert_one({"_id": 2, "own": 1})
    run_capture(ctx, once=True)

    def overtaken(changes: DataFrame, *, max_depth: int) -> BatchProfile:
        """Let another run capture and merge more changes while this run profiles its batch."""
        monkeypatch.setattr(silver_collection, "profile_batch", profile_batch)
        database.a.insert_one({"_id": 3, "theirs": "text"})
        land(ctx)
        return profile_batch(changes, max_depth=max_depth)

    monkeypatch.setattr(silver_collection, "profile_batch", overtaken)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    shape = SilverTable(ctx.tables, TableName("silver", "a")).open(f"{database.name}.a", ctx.settings.source.name).shape
    assert {"own", "theirs"} <= set(shape.fields)
    assert [tuple(row) for row in silver(ctx, "a").select("own", "theirs").orderBy("_key").collect()] == [
        (None, None),
        (1, None),
        (None, "text"),
    ]
    assert run_silver(ctx) == []
