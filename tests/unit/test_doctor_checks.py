"""The checks of `doctor` as data: facts in, findings out. No server, no lake, no Spark."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner
from without_packages import OF_SPARK, without_packages

from scripts.doctor_page import doctor_checks
from strandline.cli import app
from strandline.commands.doctor import as_block, as_line
from strandline.control.sources import SourceState
from strandline.errors import ConfigurationError, FencedError, ResumePointLost, RetriableError
from strandline.io.spark.spark_versions import SUPPORTED
from strandline.jobs.doctor import lake_checks, setting_checks, source_checks, spark_checks, spark_facts
from strandline.jobs.doctor.file_checks import gold_names, quality_names
from strandline.jobs.doctor.findings import Finding, Notes, problems_first, refusal, verdict
from strandline.jobs.doctor.source_checks import CommittedPosition, Transport
from strandline.model.support_dates import MONGODB, SPARK
from strandline.model.tables import TableName
from strandline.quality.rules import Expectation, Suite
from strandline.settings.configuration import Settings
from strandline.settings.maintenance import MaintenanceSettings
from strandline.source.deployment import Deployment
from strandline.source.oplog import OplogWindow
from strandline.source.uri import uses_tls, verifies_tls

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 26)
NOW = datetime(2026, 11, 26, tzinfo=UTC)
SET = Deployment("8.0.4", "rs0", sharded=False, identity="rs0/5f")
HOUR = 3600
SAFE = Transport(("db.example",), tls=True, verified=True, read_preference="secondaryPreferred", direct=False)


def window(hours: float | None, *, headroom_hours: float = 0, why: str | None = None) -> OplogWindow:
    present = 1_000_000_000
    oldest = None if hours is None else int(present - hours * HOUR)
    position = None if why else (present if oldest is None else int(oldest + headroom_hours * HOUR))
    return OplogWindow(oldest, present, position, why)


@pytest.mark.parametrize(
    ("version", "severity"), [("6.0.27", "warning"), ("8.0.4", "ok"), ("7.0.2", "info"), ("9.9.0", "info")]
)
def test_a_version_after_its_end_of_life(version: str, severity: str) -> None:
    found = source_checks.version(replace(SET, version=version), date(2027, 4, 1))
    assert (found.severity, version in found.found) == (severity, True)
    assert MONGODB["6.0"] == date(2025, 7, 31)


def test_a_spark_after_its_end_of_life() -> None:
    assert [spark_checks.version(f"{minor}.0", TODAY).severity for minor in ("4.0", "4.1", "4.2", "5.0")] == [
        "warning",
        "ok",
        "info",
        "warning",
    ]
    assert set(SPARK) <= set(SUPPORTED)


def test_features_that_the_server_lacks() -> None:
    assert source_checks.features(SET).severity == "ok"
    old = source_checks.features(replace(SET, version="4.4.2"))
    assert (old.severity, old.found.count("(")) == ("info", 4)


@pytest.mark.parametrize(
    ("hello", "severity"),
    [
        ({"hosts": ["a", "b", "c"]}, "ok"),
        ({"hosts": ["a"]}, "info"),
        ({"hosts": ["a", "b"], "arbiters": ["c"]}, "warning"),
        ({"hosts": ["a", "b"], "passives": ["c"], "arbiters": ["d"]}, "ok"),
    ],
)
def test_few_members_or_an_arbiter_are_reported(hello: dict[str, Any], severity: str) -> None:
    assert source_checks.topology(SET, hello).severity == severity
    assert source_checks.topology(replace(SET, sharded=True, set_name=None), {}).found == "sharded cluster"


def test_an_identity_that_the_user_may_not_read() -> None:
    assert source_checks.identity(SET).severity == "ok"
    assert source_checks.identity(replace(SET, identity="rs0")).severity == "info"


@pytest.mark.parametrize(
    ("users", "actions", "severity", "told"),
    [
        ([], [], "warning", "no user"),
        ([{"user": "a", "db": "admin"}], ["find", "changeStream"], "ok", "a@admin may only read"),
        ([{"user": "a", "db": "admin"}], ["find", "insert", "remove"], "warning", "may write: insert, remove"),
        ([{"user": "a", "db": "admin"}], ["anyAction"], "warning", "anyAction"),
    ],
)
def test_users_who_may_write_or_are_anonymous_are_a_warning(
    users: list[dict[str, str]], actions: list[str], severity: str, told: str
) -> None:
    status = {"authenticatedUsers": users, "authenticatedUserPrivileges": [{"resource": {}, "actions": actions}]}
    found = source_checks.privileges(status)
    assert (found.severity, told in found.found) == (severity, True)


@pytest.mark.parametrize(
    ("ahead", "severity"), [(0.2, "ok"), (-0.9, "ok"), (-1.5, "warning"), (3.0, "warning"), (None, "info")]
)
def test_a_clock_that_differs_by_a_second_is_a_warning(ahead: float | None, severity: str) -> None:
    assert source_checks.clock(ahead, "").severity == severity
    assert source_checks.clock(-2, "").found == "this machine's clock is 2.0 s behind MongoDB's"


@pytest.mark.parametrize(("ahead", "severity"), [(-3600, "ok"), (60, "ok"), (61, "warning")])
def test_a_cluster_time(ahead: int, severity: str) -> None:
    assert source_checks.cluster_time(1_900_000_000 + ahead, 1_900_000_000.9).severity == severity
    assert source_checks.cluster_time(1_901_987_200, 1_900_000_000).found == (
        "the source's time is 2030-04-09T17:46:40Z, 23.0 days ahead of this machine's clock"
    )


@pytest.mark.parametrize(
    ("uri", "encrypted", "verified"),
    [
        ("mongodb://h/?tls=true", True, True),
        ("mongodb://h/?SSL=true&tlsInsecure=true", True, False),
        ("mongodb://h/", False, True),
        ("mongodb+srv://h/", True, True),
        ("mongodb+srv://h/?tls=false", False, True),
        ("mongodb://h/?tls=true;tlsAllowInvalidCertificates=true", True, False),
    ],
)
def test_tls_is_read_from_the_options_of_a_uri(uri: str, encrypted: bool, verified: bool) -> None:
    assert (uses_tls(uri), verifies_tls(uri)) == (encrypted, verified)


def test_a_connection() -> None:
    assert source_checks.tls(SAFE).severity == source_checks.routing(SAFE).severity == "ok"
    assert source_checks.tls(replace(SAFE, verified=False)).severity == "warning"
    assert source_checks.tls(replace(SAFE, tls=False)).severity == "warning"
    assert source_checks.tls(replace(SAFE, tls=False, hosts=("127.0.0.1", "::1"))).severity == "ok"
    assert source_checks.routing(replace(SAFE, read_preference="primary")).severity == "info"
    assert source_checks.routing(replace(SAFE, direct=True)).severity == "warning"


@pytest.mark.parametrize(("hours", "severity"), [(None, "ok"), (2.0, "warning"), (23.9, "warning"), (48.0, "ok")])
def test_a_short_oplog_is_a_warning(hours: float | None, severity: str) -> None:
    assert source_checks.oplog(window(hours), heartbeat_ms=60_000).severity == severity
    slow = source_checks.oplog(window(48), heartbeat_ms=40 * HOUR * 1000)
    assert (slow.severity, "heartbeat" in slow.fix) == ("warning", True)


@pytest.mark.parametrize(
    ("position", "on_lost", "severity"),
    [
        (CommittedPosition(), "fail", "ok"),
        (CommittedPosition(3, is_reset=True), "fail", "info"),
        (CommittedPosition(3, window=window(None)), "fail", "ok"),
        (CommittedPosition(3, window=window(48, headroom_hours=40)), "fail", "ok"),
        (CommittedPosition(3, window=window(48, headroom_hours=0.5)), "fail", "warning"),
        (CommittedPosition(3, window=window(48, why="gone")), "heal", "warning"),
        (CommittedPosition(3, window=window(48, why="gone")), "fail", "error"),
    ],
)
def test_a_position_near_or_past_the_end_of_the_oplog_is_judged_by_on_history_lost(
    position: CommittedPosition, on_lost: str, severity: str
) -> None:
    found = source_checks.position(position, on_lost=on_lost, warn_minutes=60)
    assert found.severity == severity
    assert found.exit_code == (ResumePointLost.exit_code if severity == "error" else 0)


def test_many_small_files_are_a_warning() -> None:
    large = lake_checks.FileSizes("silver.large", 2_000, 2_000 * 100_000_000)
    small = lake_checks.FileSizes("silver.small", 600, 600 * 10_000)
    assert lake_checks.files([large]).found == "1 tables, 2,000 data files"
    told = lake_checks.files([large, small])
    assert (told.severity, told.found, told.fix) == (
        "warning",
        "many small files: silver.small has 600 of 0.0 MB",
        "strandline maintain",
    )


def test_states_and_times_of_a_lake() -> None:
    assert lake_checks.bronze(exists=True, state=SourceState("a")).severity == "ok"
    stopped = lake_checks.bronze(exists=True, state=SourceState("a", "stopped", NOW, "ops"))
    assert (stopped.severity, stopped.fix) == ("warning", "strandline start")
    assert lake_checks.bronze(exists=True, state=SourceState("a", "paused", NOW, "ops")).fix == "strandline resume"
    assert lake_checks.lake_format([]).severity == "ok"
    other = lake_checks.lake_format([ConfigurationError("silver.a was written by a preview", next_step="drop it")])
    assert (other.severity, other.found, other.fix) == ("error", "silver.a was written by a preview", "drop it")
    assert lake_checks.space(50 * 10**9, 10**12).severity == "ok"
    assert lake_checks.space(40 * 10**9, 10**12).severity == "warning"
    assert lake_checks.writers_of_folder(has_links=False).severity == "info"
    ended = {days: lake_checks.maintenance(NOW - timedelta(days=days), NOW, is_new=False) for days in (1, 8)}
    assert (ended[1].severity, ended[8].severity) == ("ok", "warning")
    assert lake_checks.maintenance(None, NOW, is_new=True).severity == "ok"
    assert lake_checks.maintenance(None, NOW, is_new=False).severity == "info"
    assert lake_checks.catalog("main", ["bronze"], has_views=False).severity == "info"


def test_logs_that_are_kept_for_less_than_capture_may_be_away() -> None:
    kept = MaintenanceSettings(retention_hours=48)
    assert [lake_checks.retention(kept, known).severity for known in (None, window(None), window(24), window(72))] == [
        "ok",
        "ok",
        "ok",
        "info",
    ]


@pytest.mark.parametrize(
    ("size", "severity"),
    [("1792m", "ok"), ("512m", "warning"), ("15g", "warning"), ("2048", "ok"), ("much", "warning")],
)
def test_memory_of_the_driver(size: str, severity: str) -> None:
    assert spark_checks.memory(size, 16 << 30).severity == severity
    assert spark_facts.machine_bytes() > 1 << 28


def test_a_jar_of_another_delta_is_information() -> None:
    package = "io.delta:delta-spark_4.2_2.13:4.4.0"
    assert spark_checks.delta(None, []).severity == "ok"
    assert spark_checks.delta(package, ["io.delta_delta-spark_4.2_2.13-4.4.0.jar"]).severity == "ok"
    assert spark_checks.delta(package, ["io.delta_delta-spark_4.1_2.13-4.4.0.jar"]).severity == "info"


def test_settings_that_do_nothing_or_too_much() -> None:
    assert {finding.severity for finding in setting_checks.examine_settings(Settings())} == {"ok"}
    sections: dict[str, Any] = {
        "capture": {"cursor_oversize_skip_threshold": 10, "on_history_lost": "restart_at_oldest"},
        "lake": {"catalog": "main", "root": "lake", "s3_endpoint": "http://minio:9000"},
        "metrics": {"port": 9000, "address": "0.0.0.0"},
        "spark": {"conf": {"sql.shuffle.partitions": "8"}},
    }
    found = list(setting_checks.examine_settings(Settings(**sections)))
    told = {(finding.check.partition(".")[2], finding.found.split()[0].rstrip(":")) for finding in found}
    assert told == {
        ("settings", "target"),
        ("unused", "capture.cursor_oversize_skip_threshold"),
        ("unused", "lake.root"),
        ("unused", "lake.s3_endpoint"),
        ("unused", "spark.conf"),
        ("risk", "capture.on_history_lost"),
        ("risk", "lake.s3_endpoint"),
        ("risk", "metrics.address"),
    }


def test_every_rule_names_a_setting() -> None:
    for rule in (*setting_checks._UNUSED, *setting_checks._RISKS):
        section, _, key = rule.key.rpartition(".")
        assert key in (type(getattr(Settings(), section)) if section else Settings).model_fields, rule.key


def test_names_that_do_not_exist() -> None:
    settings = Settings(silver={"history": "scd2", "history_collections": ["shop.order"]})  # type: ignore[arg-type]  # why: pydantic builds the section
    assert setting_checks.names(settings, {"shop.orders"}).severity == "warning"
    assert setting_checks.names(settings, {"shop.order"}).severity == "ok"
    reads = {"gold.a": [TableName("silver", "orders"), TableName("gold", "b")], "gold.b": [TableName("silver", "x")]}
    known = [TableName("silver", "orders")]
    assert gold_names(reads, known).found == "not there: gold.b reads silver.x"
    assert gold_names(reads, [*known, TableName("silver", "x")]).severity == "ok"
    expectation = Expectation("expect_column_values_to_not_be_null", {"column": "Total.net"})
    suites = [Suite("s", "s.yml", table, "warn", (expectation,)) for table in (*known, TableName("gold", "b"))]
    assert quality_names(suites, {known[0]: ["_id", "total"]}, {"gold.b"}).severity == "ok"
    told = quality_names(suites, {known[0]: ["_id"]}, set())
    assert told.found == "not there: s.yml checks gold.b, s.yml checks the column Total.net of silver.orders"


def test_a_failure_is_a_finding_and_the_next_check_goes_on() -> None:
    notes, check = Notes(), source_checks.oplog

    def fail(error: Exception) -> Finding:
        raise error

    assert not notes.look(check, lambda: fail(RetriableError("away", next_step="wait")))
    assert not notes.look(lake_checks.space, lambda: fail(KeyError("a")))
    assert notes.look(lake_checks.files, lambda: lake_checks.files([]))
    notes.add(setting_checks.SETTINGS.ok("fine"))
    first, away, strange, last = notes.sorted()
    assert (first.area, last.area) == ("configuration", "lake")
    assert (away.severity, away.found, away.fix, away.exit_code) == ("error", "away", "wait", 75)
    assert (strange.severity, strange.exit_code) == ("warning", 0)
    assert strange.found.startswith("not known: ")


def test_the_first_error_ends_the_command_as_its_cause_would() -> None:
    check = lake_checks.OPEN
    assert refusal([check.ok("a"), check.warning("b")]) is None
    raised = refusal([check.warning("b"), check.error("c", fix="do it", exit_code=6), check.error("d")])
    assert isinstance(raised, FencedError)
    assert str(raised) == "c (the first of 2 errors) → do it"


def test_every_check_has_a_name_of_its_own_and_is_listed() -> None:
    code = "".join(file.read_text("utf-8") for file in (ROOT / "pipelines/strandline/jobs/doctor").glob("*.py"))
    names = re.findall(r'(?:Check|doctor_check)\(\s*"([\w.]+)"', code)
    assert sorted(names) == sorted(check.name for check in doctor_checks())
    assert len(names) > 40


def test_a_line_holds_no_control_character() -> None:
    hostile = as_line(lake_checks.files.warning("a\nb\x1b[31m"))
    assert hostile.isprintable()
    assert hostile.endswith("→ strandline maintain")
    assert as_line(lake_checks.files.ok("fine")) == "ok       lake.files                 fine"


def test_a_terminal_gets_the_fix_of_a_problem_on_a_line_of_its_own() -> None:
    check = lake_checks.files
    assert as_block(check.warning("[bold]many\x1b")).plain.splitlines() == [
        "warning  lake.files  [bold]many\\x1b",
        f"         {check.why}",
        f"         → {check.fix}",
    ]
    assert as_block(check.ok("fine")).plain == "ok       lake.files  fine"


def test_the_verdict_counts_the_problems_and_they_come_first() -> None:
    files, session = lake_checks.files, spark_checks.SESSION
    findings = [files.ok("a"), files.warning("b"), files.info("c"), session.error("d"), files.error("e")]
    assert verdict(findings) == "2 errors, 1 warning: spark.session, lake.files; lake.files"
    assert verdict(findings[:1]) == "no errors, no warnings among 1 findings"
    assert "".join(finding.found for finding in problems_first(findings)) == "debca"


@pytest.mark.parametrize(
    ("advice", "kept"),
    [
        ("strandline doctor", lake_checks.OPEN.fix),
        ("correct PYSPARK_PYTHON, then strandline doctor --workers", "correct PYSPARK_PYTHON"),
        ("choose another lake.root; strandline doctor shows where this lake is", "choose another lake.root"),
        ("strandline maintain", "strandline maintain"),
    ],
)
def test_doctor_never_advises_doctor(advice: str, kept: str) -> None:
    assert lake_checks.OPEN.failed(ConfigurationError("a", next_step=advice)).fix == kept
    assert not [check.name for check in doctor_checks() if "strandline doctor" in check.fix]


def test_offline_findings_fit_the_documented_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRANDLINE_SOURCE__URI", raising=False)
    monkeypatch.delenv("MONGODB_URI", raising=False)
    monkeypatch.setenv("STRANDLINE_CAPTURE__TARGET", "shop")
    schema = TypeAdapter(list[Finding]).json_schema()
    done = CliRunner().invoke(app, ["doctor", "--offline", "--json"])
    findings = json.loads(done.stdout)
    jsonschema.validate(findings, schema)
    assert (done.exit_code, len(findings) > 5) == (0, True)
    assert [each["severity"] for each in findings if each["check"] == "configuration.files"] == ["warning"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([asdict(lake_checks.files.ok("a")) | {"severity": "bad"}], schema)
    wrong = CliRunner().invoke(app, ["--conf", "nowhere", "doctor", "--json"])
    (only,) = json.loads(wrong.stdout)
    assert (only["check"], only["severity"], only["exit_code"]) == ("configuration.settings", "error", 2)
    assert getattr(wrong.exception, "exit_code", None) == 2


def found_without(folder: Path, hidden: str, *options: str) -> dict[str, dict[str, Any]]:
    """Return the findings of `doctor` by check, in a process that cannot import the packages *hidden*."""
    done = without_packages(folder, "doctor", "--json", *options, hidden=hidden)
    return {finding["check"]: finding for finding in json.loads(done.stdout)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hidden", "options", "severity"),
    [
        ("pyspark", ["--no-spark"], "info"),
        ("pyspark", [], "warning"),
        ("pyspark", ["--set", "engine=spark"], "error"),
        ("delta", [], "warning"),
        (OF_SPARK, [], "warning"),
    ],
)
def test_without_a_package_of_spark_doctor_examines_everything_else(
    tmp_path: Path, hidden: str, options: list[str], severity: str
) -> None:
    findings = found_without(tmp_path, hidden, *options)
    session = findings["spark.session"]
    assert (session["severity"], session["found"]) == (severity, f"{hidden.split()[0]} is not installed")
    assert re.fullmatch(r"pip install (-e )?'?.+\[spark\]'?", session["fix"])
    assert {"lake.files", "lake.columns", "source.connection", "gold.files", "quality.files"} <= findings.keys()


@pytest.mark.parametrize("hidden", ["great_expectations", "pandas"])
def test_suites_without_their_packages_are_a_finding(tmp_path: Path, hidden: str) -> None:
    suites = tmp_path / "conf" / "quality"
    suites.mkdir(parents=True)
    (suites / "orders.yml").write_text("table: silver.orders\nexpectations: []\n", encoding="utf-8")
    finding = found_without(tmp_path, hidden, "--no-spark")["quality.files"]
    assert finding["severity"] == "error"
    assert finding["found"].endswith(" is not installed")
    assert re.fullmatch(r"pip install (-e )?'?.+\[quality\]'?", finding["fix"])
