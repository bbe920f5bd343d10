"""Capture, and commands that only look or ask, in a process that finds no Java."""

from __future__ import annotations

import json
import os
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession
from without_java import output_of, source_of, strandline

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.lake_format import FORMAT
from strandline.model.query import Query
from strandline.model.table_schemas import SIGNALS, bronze_table

Db = Database[dict[str, Any]]


# scenario: R07
def test_an_operator_needs_no_java(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    database["orders"].insert_many([{"_id": number} for number in range(5)])
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    run_capture(ctx, once=True)
    run_silver(ctx)
    told = partial(output_of, tmp_path, **source_of(mongo_uri, database))

    status = json.loads(told("status", "--json"))
    (table,) = status["silver"]
    assert (table["table"], table["live"], table["rescued"], table["quarantined"]) == ("silver.orders", 5, 0, 0)
    assert status["offset"]["state"] == "running"
    assert 'strandline_silver_table_rows{kind="live",source="test",table="silver.orders"} 5.0' in told("metrics")
    assert json.loads(told("schema", "show", "--json")) == [
        {"table": "silver.orders", "column": "_id", "type": "bigint"}
    ]
    shown = json.loads(told("offsets", "show", "--json"))
    assert (shown["source"], shown["state"], shown["warning"]) == ("test", "running", None)
    assert json.loads(told("offsets", "history", "--json"))[0]["batch"] == shown["batch"]
    (snapshot,) = json.loads(told("snapshot", "list", "--json"))
    assert (snapshot["state"], snapshot["documents"]) == ("completed", 5)
    (check,) = json.loads(told("snapshot", "verify", "--json"))
    assert (check["holds"], check["rows"]) == (True, 5)
    assert json.loads(told("dead-letters", "list", "--json")) == []
    assert len(json.loads(told("cuts", "list", "--json"))) == 1
    assert [change["path"] for change in json.loads(told("schema", "history", "--json"))] == ["_id"]
    checked = told("doctor", "--no-spark")
    assert f"of batch {shown['batch']}: the source still has the history behind it" in checked
    (form,) = (each for each in json.loads(told("doctor", "--no-spark", "--json")) if each["check"] == "lake.format")
    assert (form["severity"], form["found"]) == ("ok", str(FORMAT))
    assert "is paused" in told("pause", "--by", "it's me", "--why", "a 'reason'")
    assert "is stopped" in told("stop")
    assert json.loads(told("offsets", "show", "--json"))["state"] == "stopped"
    assert "may run" in told("start")
    for verb in ("pause", "resume", "stop"):
        told("snapshot", verb)
    told("snapshot", "start", "--collection", r".*\.orders")
    told("capture", "--once")  # acts upon all of them
    acted = ctx.tables.query(Query(bronze_table("test")).select("operation_type").where(("op", "=", "signal")))
    assert len(acted) == len(ctx.tables.query(Query(SIGNALS).select("id"))) == 4


def test_capture_and_its_position_need_no_java(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """A source's whole life: first capture, the next one, the offset moved back and reset. Then silver, by Spark."""
    told = partial(output_of, tmp_path, **source_of(mongo_uri, database))

    database["orders"].insert_many([{"_id": number} for number in range(50)])
    assert "50 snapshot documents landed" in told("capture", "--once")
    database["orders"].update_many({"_id": {"$lt": 5}}, {"$set": {"a": 1}})
    assert "5 events" in told("capture", "--once")
    told("stop")
    moved = json.loads(told("offsets", "alter", "--to", "1", "--json"))
    assert (moved["direction"], moved["events"]) == ("back", 5)
    told("start")
    assert "5 events" in told("capture", "--once")
    told("stop")
    assert json.loads(told("offsets", "reset", "--json"))["committed_batch"] is not None
    told("start")
    database["orders"].delete_one({"_id": 49})
    assert "49 snapshot documents landed" in told("capture", "--once")
    assert told("dead-letters", "replay").strip() == ""

    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "orders")
    protocol = ctx.tables.detail(bronze_table("test"))
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (1, 4)
    assert protocol["clusteringColumns"] == protocol["partitionColumns"] == []


def _full_disk(limit: int) -> None:
    """No file can grow beyond *limit* bytes, as if the disk were full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


@pytest.mark.parametrize("limit", [4_000, 40_000], ids=["the log", "a data file"])
def test_a_full_disk_is_one_line_and_loses_nothing(mongo_uri: str, database: Db, tmp_path: Path, limit: int) -> None:
    database["orders"].insert_many([{"_id": number, "text": os.urandom(200).hex()} for number in range(500)])
    source = source_of(mongo_uri, database)
    limits = {"STRANDLINE_CAPTURE__CONNECT_MAX_ATTEMPTS": "2", "STRANDLINE_CAPTURE__ERRORS_RETRY_DELAY_MAX_MS": "1"}
    full = strandline(tmp_path, "capture", "--once", preexec_fn=partial(_full_disk, limit), **source, **limits)
    lines = [line for line in full.stderr.splitlines() if line.startswith("strandline:")]
    assert (full.returncode, len(lines), "Traceback" in full.stderr) == (75, 1, False), full.stderr
    assert "check the" in lines[0]
    done = strandline(tmp_path, "capture", "--once", **source)
    assert "500 snapshot documents landed" in done.stdout, done.stderr


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
def test_a_refused_write_is_one_line(tmp_path: Path, arguments: tuple[str, ...], code: int, line: str) -> None:
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
    assert "error    lake.open                  --no-spark needs a lake in a folder of this machine" in done.stdout
