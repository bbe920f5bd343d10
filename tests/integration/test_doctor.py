"""What `doctor` looks at before somebody starts a capture."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from examined import examined
from guarded_server import guarded_server, uri_of
from lakehouse import pipeline, settings_for
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from strandline.cli import app
from strandline.demo.files import QUALITY
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.doctor.examination import examine
from strandline.jobs.doctor.findings import Finding, Notes
from strandline.jobs.doctor.lake_facts import examine_tables
from strandline.jobs.doctor.spark_checks import workers
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.operations.workers import diagnose_workers
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import bronze_table
from strandline.source.worker_probe import probe

Db = Database[dict[str, Any]]
Client = MongoClient[dict[str, Any]]


def with_files(ctx: JobContext, section: str, **folders: str) -> JobContext:
    changed = getattr(ctx.settings, section).model_copy(update=folders)
    return replace(ctx, settings=ctx.settings.model_copy(update={section: changed}))


def told(findings: list[Finding]) -> dict[str, str]:
    """Severities by the name of the check."""
    return {finding.check: finding.severity for finding in findings}


def test_doctor_opens_the_stream_at_the_committed_position(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    found = examined(ctx)
    assert [found[name].found for name in ("source.change_stream", "source.position", "lake.bronze")] == [
        "can be opened",
        "none yet",
        "not there yet",
    ]
    batch = run_capture(ctx, once=True).batch
    kept = examined(ctx)["source.position"]
    assert kept.found.startswith(f"of batch {batch}: the source still has the history behind it")
    refused = examined(
        pipeline(spark, mongo_uri, database.name, tmp_path, cursor_pipeline='[{"$match": {"$nothing": 1}}]')
    )
    assert refused["source.change_stream"].severity == "error"
    assert "opening a change stream" in refused["source.change_stream"].found
    assert "cursor_pipeline" in refused["source.change_stream"].fix
    assert "source.oplog" not in refused
    assert refused["lake.bronze"].found == "there", "the other checks went on"


@pytest.mark.long
def test_it_reads_the_files_of_gold_and_quality(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database["flights"].insert_one({"_id": 1})
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    run_capture(ctx, once=True)
    run_silver(ctx)
    found = examined(ctx)
    assert found["gold.files"].fix.startswith("write some into conf/gold")
    assert found["quality.files"].fix.startswith("write some into conf/quality")
    (tmp_path / "a.sql").write_text("select _id from silver.flights join silver.nowhere using (_id)", encoding="utf-8")
    own = with_files(with_files(ctx, "gold", sql_dir=str(tmp_path)), "quality", suites_dir=str(QUALITY))
    found = examined(own)
    assert found["gold.files"].found == f"1 views and tables, {tmp_path}"
    assert found["gold.names"].found == "not there: gold.a reads silver.nowhere"
    assert found["quality.files"].found == f"2 suites, {QUALITY}"
    assert "checks the column" in found["quality.names"].found
    (tmp_path / "b.sql").write_text("select from where", encoding="utf-8")
    found = examined(with_files(own, "quality", suites_dir="nowhere"))
    assert "b.sql" in found["gold.files"].found
    assert (found["quality.files"].severity, found["quality.files"].fix) == ("error", "correct quality.suites_dir")


def test_a_source_that_is_away_hides_no_other_finding(database: Db, tmp_path: Path) -> None:
    """Without Spark, as `--no-spark` does."""
    away = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"
    found = examine(settings_for(away, database.name, tmp_path / "lake"), with_spark=False)
    by_check = {finding.check: finding for finding in found}
    assert (by_check["source.connection"].severity, by_check["source.connection"].exit_code) == ("error", 75)
    for name in ("lake.writable", "lake.bronze", "spark.version", "gold.files", "configuration.settings"):
        assert name in by_check
    assert [finding.check for finding in found if finding.severity == "error"] == ["source.connection"]
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    blocked = told(examine(settings_for(away, database.name, tmp_path / "file" / "lake"), with_spark=False))
    assert (blocked["lake.writable"], blocked["source.connection"]) == ("error", "error")


def test_the_command_prints_json_and_ends_with_the_code_of_the_first_error(
    mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database["orders"].insert_one({"_id": 1})
    ctx = open_capture_without_spark(settings_for(mongo_uri, database.name, tmp_path / "lake"))
    assert ctx is not None
    run_capture(ctx, once=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_SOURCE__NAME", "test")
    given = ["--set", f"source.uri={mongo_uri}", "--set", "capture.scope=database"]
    given += ["--set", f"capture.target={database.name}"]
    done = CliRunner().invoke(app, [*given, "doctor", "--no-spark", "--json"])
    assert done.exit_code == 0, done.output
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert (found["source.selection"]["severity"], found["source.selection"]["found"]) == ("ok", "1 collections")
    assert (found["lake.bronze"]["found"], found["source.topology"]["severity"]) == ("there", "info")
    assert found["source.version"]["why"]
    wrong = CliRunner().invoke(app, [*given, "--set", "lake.catalog=main", "doctor", "--no-spark"])
    assert getattr(wrong.exception, "exit_code", None) == 2
    assert "MongoDB answers" in wrong.stdout, "the findings before the line on standard error"


def test_a_bronze_that_forgets_transactions_is_a_warning_at_each_start_in_status_and_in_doctor(
    mongo_uri: str, database: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = open_capture_without_spark(settings_for(mongo_uri, database.name, tmp_path))
    assert ctx is not None
    run_capture(ctx, once=True)
    assert show_offset(ctx).warning is None
    ctx.tables.set_properties(bronze_table("test"), {"delta.settransactionretentionduration": "interval 1 days"})
    problem = "bronze.test has delta.setTransactionRetentionDuration = interval 1 days: after that time Delta would let"
    assert (show_offset(ctx).warning or "").startswith(problem)
    notes = Notes()
    examine_tables(notes, ctx, None, datetime.now(UTC))
    (found,) = (each for each in notes.sorted() if each.check == "lake.transactions")
    assert (found.severity, found.found.startswith(problem)) == ("warning", True)
    assert problem not in caplog.text
    run_capture(ctx, once=True)
    assert problem in caplog.text


def test_doctor_lists_rights_that_a_user_has_and_lacks(tmp_path: Path) -> None:
    roles = {
        "reader": [{"role": "read", "db": "shop"}],
        "writer": [{"role": "readWrite", "db": "shop"}, {"role": "clusterMonitor", "db": "admin"}],
        "stranger": [{"role": "read", "db": "other"}],
    }
    found: dict[str, dict[str, Finding]] = {}
    with guarded_server(tmp_path, "p") as (server, administrator):
        administrator.shop.orders.insert_one({"_id": 1})
        for user, given in roles.items():
            administrator.admin.command("createUser", user, pwd="p", roles=given)
        for user in roles:
            findings = examine(settings_for(uri_of(server, user, "p"), "shop", tmp_path / "lake"), with_spark=False)
            found[user] = {finding.check: finding for finding in findings}
            assert not any(":p@" in str(finding) for finding in findings)
    assert [found[user]["source.privileges"].severity for user in roles] == ["ok", "warning", "ok"]
    assert found["writer"]["source.privileges"].found.startswith("writer@admin may write: ")
    assert [found[user]["source.identity"].severity for user in roles] == ["info", "ok", "info"]
    assert {finding.severity for finding in found["reader"].values()} <= {"ok", "info", "warning"}
    refused = found["stranger"]["source.change_stream"]
    assert (refused.severity, refused.exit_code) == ("error", 2)
    assert found["stranger"]["lake.bronze"].severity == "ok"


def test_doctor_asks_the_workers(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    (worker,) = diagnose_workers(pipeline(spark, mongo_uri, database.name, tmp_path))
    assert worker.problems == []
    (sound,) = workers([worker])
    assert sound.severity == "ok"
    for part in ("strandline 0.1.0, Python 3.1", "pyarrow", "pymongo 4.", "bsonjs", "MongoDB answers", "clock "):
        assert part in sound.found
    found = probe("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", ["/nowhere/ca.pem"])
    assert found["problems"] == [
        "/nowhere/ca.pem is not there",
        "MongoDB cannot be reached (ServerSelectionTimeoutError)",
    ]
    poor = replace(worker, problems=found["problems"])
    assert [finding.severity for finding in workers([worker, poor])] == ["ok", "error"]
    assert "ca.pem is not there" in workers([poor])[0].found
    assert workers([])[0].found == "no worker has answered"
