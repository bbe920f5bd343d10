"""What `doctor` looks at before somebody starts a capture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lakehouse import pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession

from pipelines.demo.files import QUALITY
from pipelines.errors import ConfigurationError
from pipelines.jobs.capture.job import run_capture
from pipelines.jobs.context import JobContext
from pipelines.jobs.operations.doctor import diagnose
from pipelines.jobs.operations.workers import diagnose_workers, require_sound
from pipelines.source.worker_probe import probe

Db = Database[dict[str, Any]]


def with_files(ctx: JobContext, section: str, **folders: str) -> JobContext:
    changed = getattr(ctx.settings, section).model_copy(update=folders)
    return replace(ctx, settings=ctx.settings.model_copy(update={section: changed}))


def test_it_opens_the_stream_and_holds_the_position_against_it(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    found = diagnose(ctx)
    assert (found["change stream"], found["position"], found["bronze"]) == (
        "can be opened",
        "none yet",
        "not there yet",
    )
    batch = run_capture(ctx, once=True).batch
    assert diagnose(ctx)["position"] == f"of batch {batch}: the source still has the history behind it"
    refused = pipeline(spark, mongo_uri, database.name, tmp_path, cursor_pipeline='[{"$match": {"$nothing": 1}}]')
    with pytest.raises(ConfigurationError, match=r"opening a change stream.*cursor_pipeline"):
        diagnose(refused)


def test_it_reads_the_files_of_gold_and_quality(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    (tmp_path / "a.sql").write_text("-- materialized: view\nselect 1 as a", encoding="utf-8")
    found = diagnose(ctx)
    assert found["gold"].startswith("no SQL files: write some into conf/gold")
    assert found["quality"].startswith("no suites: write some into conf/quality")
    own = with_files(with_files(ctx, "gold", sql_dir=str(tmp_path)), "quality", suites_dir=str(QUALITY))
    assert diagnose(own)["gold"] == f"1 views and tables, {tmp_path}"
    assert diagnose(own)["quality"] == f"2 suites, {QUALITY}"
    (tmp_path / "b.sql").write_text("select from where", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"b\.sql"):
        diagnose(own)
    with pytest.raises(ConfigurationError, match=r"there is no folder nowhere.*quality\.suites_dir"):
        diagnose(with_files(ctx, "quality", suites_dir="nowhere"))


def test_it_asks_the_workers(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    (worker,) = diagnose_workers(pipeline(spark, mongo_uri, database.name, tmp_path))
    assert worker.problems == []
    require_sound([worker])
    for part in ("strandline 0.1.0, Python 3.1", "pyarrow", "pymongo 4.", "bsonjs", "MongoDB answers", "clock "):
        assert part in str(worker)
    found = probe("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", ["/nowhere/ca.pem"])
    assert found["problems"] == [
        "/nowhere/ca.pem is not there",
        "MongoDB cannot be reached (ServerSelectionTimeoutError)",
    ]
    poor = replace(worker, problems=found["problems"])
    with pytest.raises(ConfigurationError, match=r"1 of 2 workers cannot read the source: .*ca\.pem is not there"):
        require_sound([worker, poor])
    with pytest.raises(ConfigurationError, match="no worker has answered"):
        require_sound([])
