"""Sources of a setting's value, and errors of wrong values."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration import refusal, write
from typer.testing import CliRunner

import strandline
from scripts.places import places_page
from scripts.readers import readers_page
from scripts.reference import ROOT, commands_page, errors_page, settings_page, tables_page
from scripts.spark_page import spark_versions_page
from scripts.versions import versions_page
from strandline.cli import app
from strandline.errors import ConfigurationError
from strandline.settings.configuration import Settings, load_settings
from strandline.settings.overrides import overrides_of

_SECRET = "hunter2hunter2"
_URI = f"mongodb://app:{_SECRET}@db.example:27017/"


def test_without_files_the_defaults_hold(tmp_path: Path) -> None:
    assert load_settings("local", tmp_path) == Settings()


def test_the_base_file_goes_over_the_default(conf: Path) -> None:
    write(conf, "base", "source: {name: base}")
    assert load_settings("here", conf).source.name == "base"


def test_the_target_file_goes_over_the_base_file_key_by_key(conf: Path) -> None:
    write(conf, "base", "source: {name: base, connect_timeout_ms: 7}")
    write(conf, "here", "source: {name: target}")
    source = load_settings("here", conf).source
    assert (source.name, source.connect_timeout_ms) == ("target", 7)


def test_the_environment_goes_over_the_target_file(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conf, "here", "source: {name: target, connect_timeout_ms: 7}")
    monkeypatch.setenv("STRANDLINE_SOURCE__NAME", "env")
    source = load_settings("here", conf).source
    assert (source.name, source.connect_timeout_ms) == ("env", 7)


def test_an_option_goes_over_the_environment(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_SOURCE__NAME", "env")
    monkeypatch.setenv("STRANDLINE_SOURCE__CONNECT_TIMEOUT_MS", "7")
    source = load_settings("here", conf, {"source": {"name": "option"}}).source
    assert (source.name, source.connect_timeout_ms) == ("option", 7)


def test_the_target_is_the_one_that_was_asked_for(conf: Path) -> None:
    assert load_settings("here", conf).target == "here"


def test_the_schema_is_spelt_alike_in_files_and_environment(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conf, "here", "lake: {schema: file}")
    assert load_settings("here", conf).lake_location.schema == "file"
    monkeypatch.setenv("STRANDLINE_LAKE__SCHEMA", "env")
    assert load_settings("here", conf).lake_location.schema == "env"


def test_an_unknown_key_names_file_key_and_the_nearest_valid_key(conf: Path) -> None:
    write(conf, "here", "capture: {max_batch_sise: 5}")
    message = refusal(conf)
    assert str(conf / "here.yml") in message
    assert "capture.max_batch_sise" in message
    assert "did you mean max_batch_size?" in message


@pytest.mark.parametrize("variable", ["STRANDLINE_SOURCE__URL", "STRANDLINE_SUORCE__URI", "STRANDLINE_SOURCES"])
def test_an_unknown_variable_is_refused(conf: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "x")
    assert f"environment {variable}: unknown key" in refusal(conf)


def test_kubernetes_service_variables_are_no_settings(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_METRICS", "PORT", "PORT_9400_TCP"):
        monkeypatch.setenv(f"STRANDLINE_{name}", "tcp://10.0.0.11:9400")
    for name in ("PROTO", "PORT", "ADDR"):
        monkeypatch.setenv(f"STRANDLINE_PORT_9400_TCP_{name}", "10.0.0.11")
    assert load_settings("here", conf) == Settings(target="here")


@pytest.mark.parametrize("name", ["METRICS_PORT", "SOURCE_URI", "SERVICE", "PORT_9400", "PORT__ADDRESS"])
def test_a_misspelt_variable_is_refused(conf: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"STRANDLINE_{name}", "x")
    assert f"environment STRANDLINE_{name}: unknown key" in refusal(conf)


def test_an_unknown_target_names_the_nearest(conf: Path) -> None:
    assert "unknown target 'heer' (did you mean here?)" in refusal(conf, "heer")


@pytest.mark.parametrize("target", ["../here", "/etc/here", "base", ""])
def test_a_target_is_a_name_and_no_path(conf: Path, target: str) -> None:
    (conf / "below").mkdir()
    assert f"unknown target {target!r}" in refusal(conf / "below", target)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "conf", "local").startswith(f"no folder {tmp_path / 'conf'}")


def test_no_file_chooses_the_target(conf: Path) -> None:
    write(conf, "base", "target: prod")
    assert f"{conf / 'base.yml'}: unknown key target" in refusal(conf)


def test_the_variable_of_the_target_is_the_default_of_the_option(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_TARGET", "elsewhere")
    assert load_settings("here", conf).target == "here"
    refused = CliRunner().invoke(app, ["--conf", str(conf), "status"])
    assert isinstance(refused.exception, ConfigurationError)
    assert "unknown target 'elsewhere'" in str(refused.exception)


def test_the_variable_of_the_folder_is_the_default_of_the_option(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_CONF", str(conf / "elsewhere"))
    load_settings("here", conf)
    refused = CliRunner().invoke(app, ["status"])
    assert isinstance(refused.exception, ConfigurationError)
    assert f"no folder {conf / 'elsewhere'}" in str(refused.exception)


@pytest.mark.parametrize(
    ("present", "arguments", "is_told"),
    [
        ([], ["status"], True),
        (["conf/quality/a.yml", "base.yml"], ["status"], True),
        (["conf/base.yml"], ["status"], False),
        (["conf/local.yml"], ["status"], False),
        (["own/quality/a.yml"], ["--conf", "own", "status"], False),
        ([], ["version"], False),
        ([], ["demo", "--rows", "0"], False),
    ],
)
def test_opening_a_lake_without_a_configuration_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: list[str], arguments: list[str], is_told: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in present:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "in_the_way").touch()
    monkeypatch.setenv("STRANDLINE_LAKE__ROOT", "in_the_way")  # refused before Spark starts
    shown = CliRunner().invoke(app, arguments).output
    files = "no conf/base.yml and no conf/local.yml"
    told = f"{files} in {tmp_path}: settings come from the environment and the defaults alone"
    assert (told in shown) == is_told


@pytest.mark.parametrize("lake", ["{root: null}", "{root: ''}", "{root: null, schema: shop}"])
def test_a_lake_that_is_nowhere_is_refused(conf: Path, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conf, "here", f"lake: {lake}")
    assert "neither root nor catalog is set" in refusal(conf)
    monkeypatch.setenv("STRANDLINE_LAKE__CATALOG", "main")
    assert load_settings("here", conf).lake.catalog == "main"


def test_all_problems_are_told_at_once(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conf, "base", "sorce: {}\nsource: {connect_timeout_ms: -1}")
    write(conf, "here", "capture: {snapshot_mode: never, scop: x}")
    monkeypatch.setenv("STRANDLINE_LAKE__ROOOT", "x")
    message = refusal(conf)
    for part in (
        "unknown key sorce",
        "source.connect_timeout_ms:",
        "capture.snapshot_mode:",
        "capture.scop ",
        "STRANDLINE_LAKE__ROOOT",
    ):
        assert part in message
    assert "\n" not in message


def test_an_empty_variable_is_not_there(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conf, "here", "source: {name: file}")
    for variable in ("STRANDLINE_SOURCE__NAME", "STRANDLINE_SOURCE__URI", "MONGODB_URI"):
        monkeypatch.setenv(variable, "")
    source = load_settings("here", conf).source
    assert (source.name, source.uri) == ("file", None)


def test_an_empty_uri_in_a_file_is_refused(conf: Path) -> None:
    write(conf, "here", "source: {uri: ''}")
    assert "source.uri: " in refusal(conf)


@pytest.mark.parametrize(
    "wrong", ["source: {name: NO, uri: '%s'}", "source: {uri: ['%s']}", "source: '%s'", "capture: {scope: '%s'}"]
)
def test_the_password_stands_in_no_error(conf: Path, wrong: str) -> None:
    write(conf, "here", wrong % _URI)
    assert _SECRET not in refusal(conf)


@pytest.mark.parametrize(
    ("uri", "is_told"),
    [
        (_URI, True),
        (f"mongodb://db.example/?tls=true&tlsCertificateKeyFilePassword={_SECRET}", True),
        ("mongodb://db.example:27017/?replicaSet=rs0", False),
        ("mongodb://app@db.example:27017/", False),
    ],
)
def test_a_password_in_a_file_is_told_and_not_quoted(
    conf: Path, caplog: pytest.LogCaptureFixture, uri: str, is_told: bool
) -> None:
    write(conf, "here", f"source: {{uri: '{uri}'}}")
    load_settings("here", conf)
    assert [record.getMessage().startswith(f"{conf / 'here.yml'} holds a password") for record in caplog.records] == [
        True
    ] * is_told
    assert _SECRET not in caplog.text


def test_the_password_stands_in_no_repr(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_SOURCE__URI", _URI)
    settings = load_settings("here", conf)
    assert settings.source.uri is not None
    assert settings.source.uri.get_secret_value() == _URI
    for text in (repr(settings), str(settings), repr(settings.source), settings.model_dump_json()):
        assert _SECRET not in text


def test_a_variable_that_must_be_json_is_refused_without_its_value(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_SPARK__CONF", f"not json {_SECRET}")
    message = refusal(conf)
    assert "STRANDLINE_SPARK__CONF" in message
    assert _SECRET not in message


def test_mongodb_uri_stands_in_for_the_setting(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONGODB_URI", "mongodb://fallback/")
    fallback = load_settings("here", conf).source.uri
    monkeypatch.setenv("STRANDLINE_SOURCE__URI", "mongodb://own/")
    own = load_settings("here", conf).source.uri
    assert fallback is not None
    assert own is not None
    assert (fallback.get_secret_value(), own.get_secret_value()) == ("mongodb://fallback/", "mongodb://own/")


def _engines(settings: Settings) -> tuple[str, str, str]:
    return settings.capture_engine, settings.silver_engine, settings.gold_engine


def test_one_engine_holds_for_every_layer_that_names_no_other(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _engines(load_settings("here", conf)) == ("auto", "auto", "auto")
    write(conf, "here", "engine: spark")
    assert _engines(load_settings("here", conf)) == ("spark", "spark", "spark")
    assert _engines(load_settings("here", conf, {"capture": {"engine": "native"}})) == ("native", "spark", "spark")
    monkeypatch.setenv("STRANDLINE_SILVER__ENGINE", "auto")
    assert _engines(load_settings("here", conf)) == ("spark", "auto", "spark")
    monkeypatch.setenv("STRANDLINE_ENGINE", "auto")
    monkeypatch.setenv("STRANDLINE_GOLD__ENGINE", "spark")
    assert _engines(load_settings("here", conf, overrides_of(["silver.engine=null"], Settings))) == (
        *("auto", "auto"),
        "spark",
    )


def test_an_engine_that_does_not_exist_is_one_line_with_its_place(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conf, "here", "engine: fast")
    assert f"{conf / 'here.yml'}: engine: 'fast' should be 'auto' or 'spark'" in refusal(conf)
    monkeypatch.setenv("STRANDLINE_ENGINE", "native")
    assert "environment STRANDLINE_ENGINE: engine: 'native' should be 'auto' or 'spark'" in refusal(conf)
    with pytest.raises(ConfigurationError, match="--set: engine: the value should be 'auto' or 'spark'"):
        load_settings("here", conf, overrides_of(["engine=quick"], Settings))
    with pytest.raises(ConfigurationError, match="engine: the value should be 'auto' or 'spark'"):
        strandline.connect(conf, target="here", engine="quick")  # type: ignore[arg-type]  # why: a wrong value


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().source.name = "other"


def test_the_shipped_configuration_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE__CATALOG", "main")  # as the jobs of dev and prod have it
    for file in (ROOT / "conf").glob("*.yml"):
        if file.stem != "base":
            load_settings(file.stem, ROOT / "conf")


def test_the_reference_pages_say_what_the_code_says() -> None:
    assert (ROOT / "conf" / "README.md").read_text(encoding="utf-8") == settings_page(), "run make docs"
    assert (ROOT / "docs" / "tables.md").read_text(encoding="utf-8") == tables_page(), "run make docs"
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == commands_page(), "run make docs"
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == errors_page(), "run make docs"
    assert (ROOT / "docs" / "places.md").read_text(encoding="utf-8") == places_page(), "run make docs"
    assert (ROOT / "docs" / "readers.md").read_text(encoding="utf-8") == readers_page(), "run make docs"
    assert (ROOT / "docs" / "versions.md").read_text(encoding="utf-8") == versions_page(), "run make docs"
    page = (ROOT / "docs" / "spark-versions.md").read_text(encoding="utf-8")
    assert page == spark_versions_page(), "run make docs"


def test_every_setting_is_described() -> None:
    rows = [line for line in settings_page().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("silver: {columns: {orders: {total: int}}}", "columns: 'orders' is no database.collection"),
        ("silver: {columns: {shop.: {total: int}, .orders: {total: int}}}", "'.orders' is no database.collection"),
        (
            "silver: {history: scd2, history_collections: 'shop.a, orders'}",
            "history_collections: 'orders' is no database.collection",
        ),
        ("silver: {history_collections: shop.orders}", "history_collections stands without history: scd2"),
        (
            "capture: {snapshot_collection_filter_overrides: {orders: '{}'}}",
            "snapshot_collection_filter_overrides: 'orders' is no database.collection",
        ),
        (
            "capture: {guardrail_collections_limit_action: fail}",
            "guardrail_collections_limit_action stands without guardrail_collections_max",
        ),
        (
            "capture: {snapshot_mode_configuration_based_start_stream: false}",
            "snapshot_mode_configuration_based_start_stream stands without snapshot_mode: configuration_based",
        ),
    ],
)
def test_a_setting_without_effect_is_refused(conf: Path, wrong: str, reason: str) -> None:
    write(conf, "here", wrong)
    assert reason in refusal(conf)


@pytest.mark.parametrize(("section", "key", "file"), [("quality", "suites_dir", "a.yml"), ("gold", "sql_dir", "a.sql")])
def test_suites_and_gold_stand_in_the_conf_folder_or_are_named(conf: Path, section: str, key: str, file: str) -> None:
    def found() -> str | None:
        folder: str | None = getattr(getattr(load_settings("here", conf), section), key)
        return folder

    write(conf, "here", "")
    assert found() is None
    (conf / section).mkdir()
    (conf / section / "README.md").touch()
    assert found() is None
    (conf / section / file).touch()
    assert found() == str(conf / section)
    write(conf, "here", f"{section}: {{{key}: null}}")
    assert found() == str(conf / section), "null is what the setting is by itself"
    write(conf, "here", f"{section}: {{{key}: elsewhere}}")
    assert found() == str(conf.parent / "elsewhere"), "a job runs in another working directory than its conf"
    write(conf, "here", f"{section}: {{{key}: /elsewhere}}")
    assert found() == "/elsewhere"


@pytest.mark.parametrize(
    ("folder", "expected"), [("conf", "sql/cases"), ("own/conf", "own/sql/cases"), (".", "{parent}/sql/cases")]
)
def test_folders_are_relative_to_the_folder_that_holds_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, expected: str
) -> None:
    project = tmp_path / "project"
    (project / folder).mkdir(parents=True)
    monkeypatch.chdir(project)
    monkeypatch.setenv("STRANDLINE_GOLD__TESTS_DIR", "sql/cases")
    found = load_settings("local", Path(folder)).gold.tests_dir
    assert found == expected.format(parent=tmp_path)


@pytest.mark.parametrize("folder", ["s3://bucket/pages", "dbfs:/pages", "abfss://c@a.dfs.core.windows.net/pages"])
def test_pages_are_written_to_no_uri(conf: Path, folder: str) -> None:
    write(conf, "here", f"quality: {{docs_dir: '{folder}'}}")
    assert "quality.docs_dir: " in refusal(conf)
    write(conf, "here", "quality: {docs_dir: /Volumes/main/shop_control/quality_docs}")
    assert load_settings("here", conf).quality.docs_dir == "/Volumes/main/shop_control/quality_docs"


# scenario: T09
def test_files_are_kept_for_longer_than_anybody_may_be_away(conf: Path) -> None:
    write(conf, "here", "maintenance: {max_downtime_hours: 200, retention_hours: 100}")
    with pytest.raises(ConfigurationError, match=r"retention_hours \(100\) is shorter than max_downtime_hours \(200\)"):
        load_settings("here", conf)
    write(conf, "here", "maintenance: {retention_hours: 200, log_retention_hours: 168}")
    with pytest.raises(
        ConfigurationError, match=r"log_retention_hours \(168\) is shorter than retention_hours \(200\)"
    ):
        load_settings("here", conf)


def test_tombstones_are_kept_for_an_hour_at_least_or_for_ever(conf: Path) -> None:
    write(conf, "here", "maintenance: {tombstone_retention_hours: null}")
    assert load_settings("here", conf).maintenance.tombstone_retention_hours is None
    write(conf, "here", "maintenance: {tombstone_retention_hours: 0}")
    with pytest.raises(ConfigurationError, match="tombstone_retention_hours"):
        load_settings("here", conf)
