"""A capture process is suspended (SIGSTOP) and resumes after the source got a new epoch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from lakehouse import assert_equal_to_source, bronze, documents_in_silver, pipeline
from processes import environment
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from stream_reading import failing, needs_failpoints

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import reset_offset
from strandline.jobs.silver.run_silver import run_silver

Db = Database[dict[str, Any]]
Mongo = MongoClient[dict[str, Any]]


def capture(uri: str, database: str, root: Path, engine: str) -> subprocess.Popen[str]:
    """Start a capture in its own process group, together with its JVM and workers."""
    env = environment(uri, database) | {
        "STRANDLINE_CAPTURE__ENGINE": engine,
        "STRANDLINE_LAKE__ROOT": str(root),
    }
    command = [sys.executable, "-m", "strandline.cli", "capture"]
    return subprocess.Popen(
        command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )


# scenario: Q05
@needs_failpoints
@pytest.mark.parametrize("engine", ["native", pytest.param("spark", marks=pytest.mark.long)])
def test_a_process_that_was_suspended_in_a_chunk_commits_nothing_after_a_reset(
    spark: SparkSession, mongo: Mongo, mongo_uri: str, database: Db, tmp_path: Path, engine: Literal["spark", "native"]
) -> None:
    database.a.insert_many([{"_id": number} for number in range(4)])
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    asleep = capture(mongo_uri, database.name, tmp_path, engine)
    try:
        with failing(mongo, "find", "alwaysOn", blockConnection=True, blockTimeMS=5000) as entered:
            mongo.admin.command(
                "waitForFailPoint", "failCommand", timesEntered=entered + 1, maxTimeMS=120_000
            )  # a chunk is being read
            os.killpg(asleep.pid, signal.SIGSTOP)
        set_desired_state(ctx, "stopped", by="ops", why=None)
        assert reset_offset(ctx, by="ops", why=None).committed_batch is not None
        database.a.delete_one({"_id": 3})
        set_desired_state(ctx, "running", by="ops", why=None)
        assert run_capture(ctx, once=True).documents == 3
        run_silver(ctx)
        os.killpg(asleep.pid, signal.SIGCONT)
        _, complaint = asleep.communicate(timeout=120)
        assert asleep.returncode == 6, complaint
        assert "another writer committed" in complaint
    finally:
        if asleep.poll() is None:
            os.killpg(asleep.pid, signal.SIGKILL)
            asleep.communicate()
    assert bronze(ctx).where("op = 'r'").count() == 3, "the chunk of the old epoch landed"
    run_silver(ctx)
    assert "3" not in documents_in_silver(ctx, "a")
    assert_equal_to_source(ctx, database, "a")
