"""Traces and lineage of a real pipeline, at a real collector: what they hold, and no value of a document among it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from collector import Collector, attributes, collector, nobody
from lakehouse import pipeline
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from pymongo.database import Database
from pyspark.sql import SparkSession
from without_java import output_of, source_of, strandline

from strandline.commands.telemetry import telemetry
from strandline.errors import QualityGateClosed
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.gold.refresh import refresh_gold
from strandline.jobs.silver.run_silver import run_silver
from strandline.source.uri import hosts_of

Db = Database[dict[str, Any]]
SECRET = "s3cret-of-a-document"


def sends_to(url: str) -> dict[str, str]:
    """Settings of a command, as environment variables."""
    return {
        "STRANDLINE_TELEMETRY__TRACES": "true",
        "STRANDLINE_TELEMETRY__ENDPOINT": url,
        "STRANDLINE_LINEAGE__ENABLED": "true",
        "STRANDLINE_LINEAGE__URL": url,
    }


def assert_no_values(got: Collector) -> None:
    """No value of a document, neither as text nor in hex, as resume tokens hold the `_id`."""
    sent = b"\n".join(body for _, _, body in got.requests).lower()
    assert SECRET.encode() not in sent
    assert SECRET.encode().hex().encode() not in sent


def test_a_capture_sends_its_batches_chunks_and_lineage(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    database["orders"].insert_many([{"_id": f"{SECRET}-{number}", "v": SECRET} for number in range(5)])
    source = source_of(mongo_uri, database)
    with collector() as got:
        output_of(tmp_path, "capture", "--once", **source, **sends_to(got.url))
        database["orders"].update_one({"_id": f"{SECRET}-1"}, {"$set": {"v": SECRET * 2}})
        output_of(tmp_path, "capture", "--once", **source, **sends_to(got.url))

    (chunk,) = got.spans("snapshot chunk")
    seen = attributes(chunk)
    assert (seen["collection"], seen["chunk"], seen["documents"]) == (f"{database.name}.orders", 0, 5)
    assert seen["version"] > 0
    (batch,) = [found for found in got.spans("capture batch") if attributes(found)["events"]]
    seen = attributes(batch)
    assert (seen["source"], seen["table"], seen["events"]) == ("test", "bronze.test", 1)
    assert seen["bytes"] > len(SECRET)
    assert seen["first_cluster_time"] == seen["last_cluster_time"]
    assert seen["version"] > attributes(chunk)["version"]
    assert batch.parent_span_id == b""
    assert {found.status.code for found in got.spans()} == {Status.STATUS_CODE_UNSET}

    events = got.events("capture.test")
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"] * 2
    assert len({event["run"]["runId"] for event in events}) == 2
    (read,), (written,) = events[1]["inputs"], events[1]["outputs"]
    assert read["namespace"] == f"mongodb://{hosts_of(mongo_uri)}"
    assert read["name"] == f"{database.name}.orders"
    assert (written["namespace"], written["name"]) == ("file", str(tmp_path / "lake" / "bronze" / "test"))
    assert [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in events] == [0, 5, 0, 1]
    assert_no_values(got)


def test_a_capture_whose_collector_is_away_captures(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    database["orders"].insert_many([{"_id": number} for number in range(5)])
    began = time.monotonic()
    done = strandline(tmp_path, "capture", "--once", **source_of(mongo_uri, database), **sends_to(nobody()))
    assert time.monotonic() - began < 60
    assert "5 snapshot documents landed" in done.stdout, done.stderr
    lines = [line for line in done.stderr.splitlines() if "delivery" in line]
    assert sorted(line.split("delivery of ")[1].split()[0] for line in lines) == ["lineage", "traces"], done.stderr
    assert "Traceback" not in done.stderr
    warnings = [
        line for line in done.stderr.splitlines() if '"level": "WARNING"' in line and "no conf/base.yml" not in line
    ]
    assert warnings == lines


def test_a_capture_that_sends_nothing_imports_none_of_the_libraries(
    mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    source = source_of(mongo_uri, database)
    done = strandline(tmp_path, "capture", "--once", PYTHONPROFILEIMPORTTIME="1", **source)
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "pymongo" in imported
    assert imported & {"opentelemetry", "openlineage"} == set()


def with_gold(ctx: JobContext, folder: Path) -> JobContext:
    """The same pipeline with two gold nodes and a suite."""
    for name in ("gold", "quality"):
        (folder / name).mkdir()
    (folder / "gold" / "by_city.sql").write_text(
        "-- materialized: table\nSELECT upper(city) AS city, count(*) AS n FROM silver.orders"
        " WHERE NOT _deleted GROUP BY city"
    )
    (folder / "gold" / "broken.sql").write_text("SELECT nothing FROM silver.orders")
    (folder / "quality" / "orders.yml").write_text(
        "table: silver.orders\non_failure: block\nexpectations:\n"
        "  - {type: expect_column_values_to_not_be_null, column: city}\n"
    )
    gold = ctx.settings.gold.model_copy(update={"sql_dir": str(folder / "gold")})
    quality = ctx.settings.quality.model_copy(
        update={"suites_dir": str(folder / "quality"), "docs_dir": str(folder / "docs")}
    )
    return replace(ctx, settings=ctx.settings.model_copy(update={"gold": gold, "quality": quality}))


@pytest.mark.long  # why: two silver runs, two gates and a build of gold
def test_silver_gold_and_the_gate_send_spans_and_lineage(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database["orders"].insert_many([{"_id": number, "city": f"{SECRET} {number % 2}"} for number in range(4)])
    ctx = with_gold(pipeline(spark, mongo_uri, database.name, tmp_path / "lake"), tmp_path)
    run_capture(ctx, once=True)
    with collector() as got:
        on = ctx.settings.telemetry.model_copy(update={"traces": True, "endpoint": got.url})
        told = ctx.settings.lineage.model_copy(update={"enabled": True, "url": got.url})
        with telemetry(ctx.settings.model_copy(update={"telemetry": on, "lineage": told})):
            run_silver(ctx)
            refresh_gold(ctx)
            database["orders"].insert_one({"_id": 9, "city": None})
            run_capture(ctx, once=True)
            run_silver(ctx)
            with pytest.raises(QualityGateClosed):
                refresh_gold(ctx)
    assert_spans(got)
    assert_lineage(got, ctx)
    assert_no_values(got)


def assert_spans(got: Collector) -> None:
    first, _ = got.spans("silver run")
    table = got.spans("silver table")[0]
    assert (table.trace_id, table.parent_span_id) == (first.trace_id, first.span_id)
    seen = attributes(table)
    assert (seen["table"], seen["rows_in"], seen["inserted"], seen["updated"]) == ("silver.orders", 4, 4, 0)
    gold = {attributes(found)["table"]: found for found in got.spans("gold node")}
    assert len(got.spans("gold node")) == 2
    assert (attributes(gold["gold.by_city"])["rows"], attributes(gold["gold.by_city"])["mode"]) == (2, "full")
    assert gold["gold.broken"].status.code == Status.STATUS_CODE_ERROR
    assert "nothing" in gold["gold.broken"].status.message
    runs = {found.span_id: found for found in got.spans("gold run")}
    assert len(runs) == 2
    assert {found.parent_span_id for found in (*gold.values(), *got.spans("quality run"))} <= runs.keys()
    passed, closed = got.spans("quality run")
    assert (attributes(passed)["checks"], attributes(passed)["failed"]) == (1, 0)
    assert (attributes(closed)["failed"], closed.status.message) == (1, "QualityGateClosed")


def assert_lineage(got: Collector, ctx: JobContext) -> None:
    root = ctx.tables.lake.folder("x").removesuffix("/x")
    start, merged, *_ = got.events("silver.orders")
    assert (start["eventType"], merged["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == merged["run"]["runId"]
    assert merged["inputs"][0]["name"] == f"{root}/bronze/test"
    (written,) = merged["outputs"]
    assert written["name"] == f"{root}/silver/orders"
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert {field["name"]: field["type"] for field in written["facets"]["schema"]["fields"]}["city"] == "string"
    _, built = got.events("gold.by_city")
    (written,) = built["outputs"]
    assert "upper(city)" in built["job"]["facets"]["sql"]["query"]
    assert built["inputs"][0]["name"] == f"{root}/silver/orders"
    fields = written["facets"]["columnLineage"]["fields"]
    (source,) = fields["city"]["inputFields"]
    assert (source["name"], source["field"]) == (f"{root}/silver/orders", "city")
    assert source["transformations"][0]["subtype"] == "TRANSFORMATION"
    assert [event["eventType"] for event in got.events("gold.broken")] == ["START", "FAIL"]
    checks = [event for event in got.events("quality") if event["eventType"] != "START"]
    assert [event["eventType"] for event in checks] == ["COMPLETE", "FAIL"]
    assert checks[0]["inputs"][0]["name"] == f"{root}/silver/orders"
    outcomes = [event["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"][0] for event in checks]
    assert [(each["column"], each["success"]) for each in outcomes] == [("city", True), ("city", False)]
