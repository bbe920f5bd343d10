"""Crash capture before and after each of its commits. The next run always recovers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crashing import Crash, CrashingTables
from lakehouse import assert_streamed_exactly_once, bronze, spark_pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext

_COMMITS = ("the table", "the start", "the plan", "the chunk", "the completion", "the batch that tells of it")


# promises 1 and 2; scenario: A01, A18, E01, E03, E10
@pytest.mark.long
def test_a_snapshot_survives_the_end_of_its_process_after_each_commit(
    spark: SparkSession, mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    database.a.insert_many([{"_id": number} for number in range(20)])
    for number, commit in enumerate(_COMMITS, 1):
        ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path / str(number))
        ending = JobContext(ctx.settings, spark, CrashingTables(spark, ctx.tables.lake, {"left": number, "after": 1}))
        with pytest.raises(Crash):
            run_capture(ending, once=True)
        run_capture(ctx, once=True)
        assert_streamed_exactly_once(ctx)
        counts = bronze(ctx).selectExpr(
            "count_if(op = 'r')",
            "count(DISTINCT CASE WHEN op = 'r' THEN key END)",
            "count_if(operation_type = 'completed')",
        )
        assert counts.first() == (20, 20, 1), commit
