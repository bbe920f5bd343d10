"""Commands that only look or ask, in a process that finds no Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lakehouse import pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession

from pipelines.jobs.capture.job import run_capture
from pipelines.model.lake_format import FORMAT
from pipelines.model.query import Query
from pipelines.model.table_schemas import SIGNALS, bronze_table

Db = Database[dict[str, Any]]
COMMAND = Path(sys.executable).with_name("strandline")


def strandline(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command in *folder*, with no Java on the PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "STRANDLINE", "SPARK"))}
    env = kept | {"PATH": str(folder), "STRANDLINE_SOURCE__NAME": "test"} | more
    return subprocess.run(
        [str(COMMAND), *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


# scenario: R07
def test_an_operator_needs_no_java(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    database["orders"].insert_many([{"_id": number} for number in range(5)])
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    run_capture(ctx, once=True)
    source = {"STRANDLINE_SOURCE__URI": mongo_uri}

    def told(*arguments: str) -> str:
        done = strandline(tmp_path, *arguments, **source)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        return done.stdout

    shown = json.loads(told("offsets", "show", "--json"))
    assert (shown["source"], shown["state"], shown["warning"]) == ("test", "running", None)
    assert json.loads(told("offsets", "history", "--json"))[0]["batch"] == shown["batch"]
    (snapshot,) = json.loads(told("snapshot", "list", "--json"))
    assert (snapshot["state"], snapshot["documents"]) == ("completed", 5)
    (check,) = json.loads(told("snapshot", "verify", "--json"))
    assert (check["holds"], check["rows"]) == (True, 5)
    assert json.loads(told("dead-letters", "list", "--json")) == []
    assert json.loads(told("cuts", "list", "--json")) == []
    assert json.loads(told("schema", "history", "--json")) == []
    checked = told("doctor", "--no-spark")
    assert f"position  of batch {shown['batch']}: the source still has the history behind it" in checked
    assert f"format  {FORMAT}" in checked
    assert "is paused" in told("pause", "--by", "it's me", "--why", "a 'reason'")
    assert "is stopped" in told("stop")
    assert json.loads(told("offsets", "show", "--json"))["state"] == "stopped"
    assert "may run" in told("start")
    for verb in ("pause", "resume", "stop"):
        told("snapshot", verb)
    told("snapshot", "start", "--collection", r".*\.orders")
    run_capture(ctx, once=True)  # acts upon all of them, through Spark
    acted = ctx.tables.query(Query(bronze_table("test")).select("operation_type").where(("op", "=", "signal")))
    assert len(acted) == len(ctx.tables.query(Query(SIGNALS).select("id"))) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("offsets", "show"), 2, "source test has no offset yet → "),
        (("snapshot", "list"), 2, "source test has no snapshots yet"),
        (("dead-letters", "show", "x"), 2, "there is no dead letter 'x'"),
        (("stop",), 75, "control.sources cannot be read or written"),
        (("quality", "docs"), 2, "no page has been written yet"),
    ],
)
def test_a_refusal_is_one_line(tmp_path: Path, arguments: tuple[str, ...], code: int, line: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "control").write_text("in the way")
    done = strandline(tmp_path, *arguments)
    lines = [each for each in done.stderr.splitlines() if each.startswith("strandline:")]
    assert (done.returncode, len(lines)) == (code, 1), done.stderr
    assert line in lines[0]
    assert "Traceback" not in done.stderr


def test_a_lake_in_a_catalog_is_not_looked_at_without_spark(tmp_path: Path) -> None:
    done = strandline(tmp_path, "doctor", "--no-spark", STRANDLINE_LAKE__CATALOG="main")
    assert done.returncode == 2
    assert "strandline: --no-spark needs a lake in a folder of this machine" in done.stderr
