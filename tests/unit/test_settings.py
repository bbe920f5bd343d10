"""Where a setting's value comes from, and what a wrong one says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import ConfigurationError
from pipelines.settings import Settings, load_settings
from scripts.reference import ROOT, settings_page, tables_page

_SECRET = "hunter2hunter2"
_DEEP = '{"a":' * 600 + "1" + "}" * 600
_NESTED = '{"$and": [' * 480 + "{}" + "]}" * 480
_URI = f"mongodb://app:{_SECRET}@db.example:27017/"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("STRANDLINE_") or name == "MONGODB_URI":
            monkeypatch.delenv(name)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A folder with an empty base and an empty target called ``here``."""
    (tmp_path / "base.yml").write_text("")
    (tmp_path / "here.yml").write_text("")
    return tmp_path


def _write(conf: Path, name: str, text: str) -> None:
    (conf / f"{name}.yml").write_text(text, encoding="utf-8")


def _refusal(conf: Path, target: str = "here") -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(target, conf)
    return str(caught.value)


def test_without_files_the_defaults_hold(tmp_path: Path) -> None:
    assert load_settings("local", tmp_path) == Settings()


def test_the_base_file_goes_over_the_default(conf: Path) -> None:
    _write(conf, "base", "source: {name: base}")
    assert load_settings("here", conf).source.name == "base"


def test_the_target_file_goes_over_the_base_file_key_by_key(conf: Path) -> None:
    _write(conf, "base", "source: {name: base, connect_timeout_ms: 7}")
    _write(conf, "here", "source: {name: target}")
    source = load_settings("here", conf).source
    assert (source.name, source.connect_timeout_ms) == ("target", 7)


def test_the_environment_goes_over_the_target_file(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(conf, "here", "source: {name: target, connect_timeout_ms: 7}")
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
    _write(conf, "here", "lake: {schema: file}")
    assert load_settings("here", conf).lake_location.schema == "file"
    monkeypatch.setenv("STRANDLINE_LAKE__SCHEMA", "env")
    assert load_settings("here", conf).lake_location.schema == "env"


def test_an_unknown_key_names_file_key_and_the_nearest_valid_key(conf: Path) -> None:
    _write(conf, "here", "capture: {max_batch_sise: 5}")
    message = _refusal(conf)
    assert str(conf / "here.yml") in message
    assert "capture.max_batch_sise" in message
    assert "did you mean max_batch_size?" in message


@pytest.mark.parametrize("variable", ["STRANDLINE_SOURCE__URL", "STRANDLINE_SUORCE__URI", "STRANDLINE_SOURCES"])
def test_an_unknown_variable_is_refused(conf: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "x")
    assert f"environment {variable}: unknown key" in _refusal(conf)


def test_what_kubernetes_makes_of_a_service_of_that_name_is_no_setting(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_METRICS", "PORT", "PORT_9400_TCP"):
        monkeypatch.setenv(f"STRANDLINE_{name}", "tcp://10.0.0.11:9400")
    for name in ("PROTO", "PORT", "ADDR"):
        monkeypatch.setenv(f"STRANDLINE_PORT_9400_TCP_{name}", "10.0.0.11")
    assert load_settings("here", conf) == Settings(target="here")


@pytest.mark.parametrize("name", ["METRICS_PORT", "SOURCE_URI", "SERVICE", "PORT_9400", "PORT__ADDRESS"])
def test_what_only_looks_like_it_is_refused(conf: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"STRANDLINE_{name}", "x")
    assert f"environment STRANDLINE_{name}: unknown key" in _refusal(conf)


def test_an_unknown_target_names_the_nearest(conf: Path) -> None:
    assert "unknown target 'heer' (did you mean here?)" in _refusal(conf, "heer")


@pytest.mark.parametrize("target", ["../here", "/etc/here", "base", ""])
def test_a_target_is_a_name_and_no_path(conf: Path, target: str) -> None:
    (conf / "below").mkdir()
    assert f"unknown target {target!r}" in _refusal(conf / "below", target)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert _refusal(tmp_path / "conf", "local").startswith(f"no folder {tmp_path / 'conf'}")


def test_no_file_chooses_the_target(conf: Path) -> None:
    _write(conf, "base", "target: prod")
    assert f"{conf / 'base.yml'}: unknown key target" in _refusal(conf)


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
def test_a_lake_that_is_opened_without_a_configuration_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: list[str], arguments: list[str], is_told: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in present:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "in_the_way").touch()
    monkeypatch.setenv("STRANDLINE_LAKE__ROOT", "in_the_way")  # refused before Spark starts
    shown = CliRunner().invoke(app, arguments).output
    told = f"no conf/base.yml and no conf/local.yml in {tmp_path}: settings come from the environment and the defaults alone"
    assert (told in shown) == is_told


@pytest.mark.parametrize("lake", ["{root: null}", "{root: ''}", "{root: null, schema: shop}"])
def test_a_lake_that_is_nowhere_is_refused(conf: Path, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(conf, "here", f"lake: {lake}")
    assert "neither root nor catalog is set" in _refusal(conf)
    monkeypatch.setenv("STRANDLINE_LAKE__CATALOG", "main")
    assert load_settings("here", conf).lake.catalog == "main"


def test_all_problems_are_told_at_once(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(conf, "base", "sorce: {}\nsource: {connect_timeout_ms: -1}")
    _write(conf, "here", "capture: {snapshot_mode: never, scop: x}")
    monkeypatch.setenv("STRANDLINE_LAKE__ROOOT", "x")
    message = _refusal(conf)
    for part in ("unknown key sorce", "source.connect_timeout_ms:", "capture.snapshot_mode:", "capture.scop ", "STRANDLINE_LAKE__ROOOT"):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["source: [", "- a", "source: \udcff"])
def test_a_file_that_is_not_a_mapping_is_one_line(conf: Path, text: str) -> None:
    (conf / "here.yml").write_bytes(text.encode("utf-8", "surrogateescape"))
    message = _refusal(conf)
    assert str(conf / "here.yml") in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["source: {name: a, name: b}", "source: {name: a}\n'source': {name: b}"])
def test_a_key_that_stands_twice_is_refused(conf: Path, text: str) -> None:
    _write(conf, "here", text)
    assert " stands twice at line " in _refusal(conf)


@pytest.mark.parametrize(
    "text", ["12:30", "0o17", "true", "1.0e3", "2013-06-01", "!!python/object/apply:os.getpid []", "[1]", "{a: 1}", "null"]
)
def test_yaml_makes_no_number_of_what_is_none(conf: Path, text: str) -> None:
    _write(conf, "here", f"capture: {{max_batch_size: {text}}}")
    assert str(conf / "here.yml") in (message := _refusal(conf)) or "capture.max_batch_size: " in message


@pytest.mark.parametrize("name", ["no", "on", "y", "off", "yes"])
def test_a_name_is_no_truth_value(conf: Path, name: str) -> None:
    _write(conf, "here", f"source: {{name: {name}}}")
    assert load_settings("here", conf).source.name == name


def test_a_key_that_yaml_takes_for_a_truth_value_is_an_unknown_key(conf: Path) -> None:
    _write(conf, "here", "on: 1\nsource: {no: 1, ~: 2}")
    message = _refusal(conf)
    for key in ("unknown key on ", "unknown key source.no ", "unknown key source.~ "):
        assert key in message


def test_a_time_needs_no_quotes(conf: Path) -> None:
    _write(conf, "here", "capture: {start_at: 2013-06-01T00:00:00+00:00}")
    assert load_settings("here", conf).capture.start_at == "2013-06-01T00:00:00+00:00"


def test_spark_settings_arrive_as_they_are_written(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(conf, "here", "spark: {conf: {spark.ui.enabled: true, spark.port: 4040, spark.version: 4.10, spark.word: 'no'}}")
    written = {"spark.ui.enabled": "true", "spark.port": "4040", "spark.version": "4.10", "spark.word": "no"}
    assert load_settings("here", conf).spark.conf == written
    monkeypatch.setenv("STRANDLINE_SPARK__CONF", '{"spark.port": 4041, "spark.ui.enabled": false}')
    assert load_settings("here", conf).spark.conf == written | {"spark.port": "4041", "spark.ui.enabled": "false"}


@pytest.mark.parametrize("text", ["source:\ncapture:\n", "source: ~", "spark:\n  conf:\n", "# all of it is a comment"])
def test_a_section_with_nothing_under_it_changes_nothing(conf: Path, text: str) -> None:
    _write(conf, "here", text)
    assert load_settings("here", conf) == Settings(target="here")


def test_an_empty_section_keeps_what_the_base_says(conf: Path) -> None:
    _write(conf, "base", "source: {name: base}\nspark: {conf: {a: b}}")
    _write(conf, "here", "source:\nspark:\n  conf:\n")
    settings = load_settings("here", conf)
    assert (settings.source.name, settings.spark.conf) == ("base", {"a": "b"})


def test_null_in_a_file_or_variable_unsets(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(conf, "here", "spark: {master: ~}\nlake: {catalog: main}")
    monkeypatch.setenv("STRANDLINE_LAKE__CATALOG", "null")
    settings = load_settings("here", conf)
    assert (settings.spark.master, settings.lake.catalog) == (None, None)


def test_an_empty_variable_is_not_there(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(conf, "here", "source: {name: file}")
    for variable in ("STRANDLINE_SOURCE__NAME", "STRANDLINE_SOURCE__URI", "MONGODB_URI"):
        monkeypatch.setenv(variable, "")
    source = load_settings("here", conf).source
    assert (source.name, source.uri) == ("file", None)


def test_an_empty_uri_in_a_file_is_refused(conf: Path) -> None:
    _write(conf, "here", "source: {uri: ''}")
    assert "source.uri: " in _refusal(conf)


@pytest.mark.parametrize("wrong", ["source: {name: NO, uri: '%s'}", "source: {uri: ['%s']}", "source: '%s'", "capture: {scope: '%s'}"])
def test_the_password_stands_in_no_error(conf: Path, wrong: str) -> None:
    _write(conf, "here", wrong % _URI)
    assert _SECRET not in _refusal(conf)


@pytest.mark.parametrize(
    ("uri", "is_told"),
    [
        (_URI, True),
        (f"mongodb://db.example/?tls=true&tlsCertificateKeyFilePassword={_SECRET}", True),
        ("mongodb://db.example:27017/?replicaSet=rs0", False),
        ("mongodb://app@db.example:27017/", False),
    ],
)
def test_a_password_in_a_file_is_told_and_not_quoted(conf: Path, caplog: pytest.LogCaptureFixture, uri: str, is_told: bool) -> None:
    _write(conf, "here", f"source: {{uri: '{uri}'}}")
    load_settings("here", conf)
    assert [record.getMessage().startswith(f"{conf / 'here.yml'} holds a password") for record in caplog.records] == [True] * is_told
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
    message = _refusal(conf)
    assert "STRANDLINE_SPARK__CONF" in message
    assert _SECRET not in message


@pytest.mark.parametrize("written", ["shop.orders, shop.items", "shop.orders,shop.items", " shop.orders ,, shop.items , "])
def test_lists_may_be_written_as_debezium_does(conf: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    _write(conf, "here", f"capture: {{collection_include_list: '{written}'}}")
    assert load_settings("here", conf).capture.collection_include_list == ("shop.orders", "shop.items")
    monkeypatch.setenv("STRANDLINE_CAPTURE__DATABASE_INCLUDE_LIST", written)
    assert load_settings("here", conf).capture.database_include_list == ("shop.orders", "shop.items")


def test_lists_may_be_written_as_yaml_does(conf: Path) -> None:
    _write(conf, "here", "capture: {collection_include_list: ['shop\\..*', 'crm\\.people']}")
    assert load_settings("here", conf).capture.collection_include_list == ("shop\\..*", "crm\\.people")


@pytest.mark.parametrize(
    ("written", "entries"),
    [
        (r"hr\.salary_[0-9]{1,2}, shop\.orders", (r"hr\.salary_[0-9]{1,2}", r"shop\.orders")),
        (r"a\.(b|c{1,},d),[e,(]\.f", (r"a\.(b|c{1,},d)", r"[e,(]\.f")),
        (r"a\.[],)],b\.[^],(]", (r"a\.[],)]", r"b\.[^],(]")),
        (r"a\.\(,b\.c\,d", (r"a\.\(", r"b\.c\,d")),
        ("a.b(, c.d", ("a.b(", "c.d")),
        ("a.b), c.(d", ("a.b)", "c.(d")),
        ("[a-c].*, shop.x", ("[a-c].*", "shop.x")),
        (r'["hr\\.salary_[0-9]{1,2}", " a.b,c "]', (r"hr\.salary_[0-9]{1,2}", "a.b,c")),
        ("[]", ()),
        ("5", ("5",)),
    ],
)
def test_a_comma_in_brackets_does_not_end_an_entry(
    conf: Path, monkeypatch: pytest.MonkeyPatch, written: str, entries: tuple[str, ...]
) -> None:
    monkeypatch.setenv("STRANDLINE_CAPTURE__FILTERS_MATCH_MODE", "literal")  # what is no regular expression is seen, too
    monkeypatch.setenv("STRANDLINE_CAPTURE__DATABASE_EXCLUDE_LIST", written)
    assert load_settings("here", conf).capture.database_exclude_list == entries


def test_a_regular_expression_with_a_comma_may_stand_in_a_file(conf: Path) -> None:
    _write(conf, "here", "capture: {database_include_list: 'salary_[0-9]{1,2}'}")
    assert load_settings("here", conf).capture.database_include_list == ("salary_[0-9]{1,2}",)


def test_a_list_in_the_environment_is_one_of_text(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_CAPTURE__DATABASE_INCLUDE_LIST", '["a", 5]')
    assert "capture.database_include_list.1: " in _refusal(conf)


def test_a_list_that_is_none_is_refused(conf: Path) -> None:
    _write(conf, "here", "capture: {collection_include_list: {a: 5}}")
    assert "capture.collection_include_list:" in _refusal(conf)


def test_mongodb_uri_stands_in_for_the_setting(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONGODB_URI", "mongodb://fallback/")
    fallback = load_settings("here", conf).source.uri
    monkeypatch.setenv("STRANDLINE_SOURCE__URI", "mongodb://own/")
    own = load_settings("here", conf).source.uri
    assert fallback is not None
    assert own is not None
    assert (fallback.get_secret_value(), own.get_secret_value()) == ("mongodb://fallback/", "mongodb://own/")


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


def test_every_setting_is_described() -> None:
    rows = [line for line in settings_page().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []


# scenario: M07
def test_lists_of_the_selection_are_trimmed(conf: Path) -> None:
    _write(
        conf, "here", "capture: {field_exclude_list: ' *.a.b , c.d.e.f ', skipped_operations: ' c , d ', collection_exclude_list: ' a.b '}"
    )
    capture = load_settings("here", conf).capture
    assert (capture.field_exclude_list, capture.skipped_operations, capture.collection_exclude_list) == (
        ("*.a.b", "c.d.e.f"),
        ("c", "d"),
        ("a.b",),
    )


@pytest.mark.parametrize(
    ("capture", "reason"),
    [
        ("{database_include_list: a, database_exclude_list: b}", "database_include_list and database_exclude_list exclude each other"),
        ("{collection_include_list: a.b, collection_exclude_list: c.d}", "exclude each other"),
        ("{collection_exclude_list: 'a.b, (%s'}", "collection_exclude_list entry 2 is no regular expression"),
        ("{collection_include_list: 'a{99999999999999999999}'}", "collection_include_list entry 1 is no regular expression"),
        ("{database_exclude_list: '%s{99999999999999999999}'}", "database_exclude_list entry 1 is no regular expression"),
        (f"{{database_include_list: '{'(' * 5000 + ')' * 5000}'}}", "database_include_list entry 1 is nested too deeply"),
        ("{snapshot_include_collection_list: 'a.b, (%s'}", "snapshot_include_collection_list entry 2 is no regular expression"),
        (
            "{snapshot_include_collection_list: nodot, filters_match_mode: literal}",
            "snapshot_include_collection_list entry 1 is no database.collection",
        ),
        (
            f"{{snapshot_collection_filter_overrides: {{a.b: '{_DEEP}'}}}}",
            "the query of a.b is no JSON of a document",
        ),
        ("{collection_include_list: nodot, filters_match_mode: literal}", "collection_include_list entry 1 is no database.collection"),
        ("{skipped_operations: 'c,r'}", "capture.skipped_operations.1: "),
        ("{skipped_operations: 'c,none'}", "none stands beside others"),
        ("{field_exclude_list: 'a.b.c, a.b'}", "field_exclude_list entry 2 is no database.collection.field"),
        ("{field_exclude_list: 'a..c'}", "field_exclude_list entry 1 is no database.collection.field"),
        ("{field_exclude_list: a.b._id}", "field_exclude_list entry 1 names _id"),
        ("{field_mask_list: a.b._id.c}", "field_mask_list entry 1 names _id"),
        ("{field_hash_list: '*.*._id', field_hash_salt: %s}", "field_hash_list entry 1 names _id"),
        ("{field_renames: 'a.b._id:c'}", "field_renames entry 1 names _id"),
        ("{field_renames: 'a.b.c:_id'}", "field_renames entry 1 renames to what is no field name, or to _id"),
        ("{field_renames: 'a.b.c:d.e'}", "renames to what is no field name"),
        ("{field_renames: 'a.b.c:$d'}", "renames to what is no field name"),
        ("{field_renames: a.b.c}", "field_renames entry 1 is no database.collection.field:new_name"),
        ("{field_renames: 'a.b.c:e, a.b.d:e'}", "field_renames gives two fields the same name"),
        ("{field_renames: 'a.b.c:c'}", "field_renames gives a field the name that it has"),
        ("{field_renames: 'a.b.c:d', mode: change_streams}", "field_renames needs whole documents"),
        ("{field_exclude_list: a.b.c, field_mask_list: a.b.c}", "a field stands twice"),
        ("{field_hash_list: a.b.c}", "field_hash_list needs field_hash_salt"),
        ("{field_hash_list: a.b.c, field_hash_salt: short}", "capture.field_hash_salt: "),
        ("{cursor_pipeline: '[%s'}", "cursor_pipeline is not valid JSON"),
        (f"{{cursor_pipeline: '[{{\"$match\": {'[' * 100_000}'}}", "cursor_pipeline is nested too deeply"),
        (f"{{cursor_pipeline: '[{{\"$match\": {_NESTED}}}]'}}", "cursor_pipeline is nested too deeply"),
        ('{cursor_pipeline: \'[{"$match": {"a": 99999999999999999999}}]\'}', "cursor_pipeline is not valid JSON"),
        ('{cursor_pipeline: \'[{"$match": {"a": {"$oid": "%s"}}}]\'}', "cursor_pipeline is not valid JSON"),
        ('{cursor_pipeline: \'[{"$project": {"_id": 0, "x": "%s"}}]\'}', "cursor_pipeline stage 1 would remove _id"),
        ('{cursor_pipeline: \'[{"$set": {"x": "$y"}}]\', field_mask_list: a.b.c}', "could copy one"),
        ("{cursor_pipeline_order: user_only}", "cursor_pipeline_order stands without a cursor_pipeline"),
        ("{mode: snapshot}", "capture.mode: "),
    ],
)
def test_a_contradiction_in_the_selection_is_refused_without_a_value(conf: Path, capture: str, reason: str) -> None:
    _write(conf, "here", f"capture: {capture.replace('%s', _SECRET)}")
    message = _refusal(conf)
    assert reason in message
    assert _SECRET not in message


def test_all_contradictions_of_the_selection_are_told_at_once(conf: Path) -> None:
    _write(
        conf,
        "here",
        "capture: {field_exclude_list: 'a.b, a.b._id', database_include_list: '(', skipped_operations: 'none,c', cursor_pipeline: x}",
    )
    message = _refusal(conf)
    for part in ("entry 1 is no database", "entry 2 names _id", "database_include_list entry 1", "none stands", "not valid JSON"):
        assert part in message


def test_the_salt_stands_in_no_repr(conf: Path) -> None:
    _write(conf, "here", f"capture: {{field_hash_list: a.b.c, field_hash_salt: {_SECRET}}}")
    settings = load_settings("here", conf)
    assert settings.capture.field_policy.salt == _SECRET.encode()
    for text in (repr(settings), settings.model_dump_json(), repr(settings.capture.field_policy)):
        assert _SECRET not in text


def test_rules_keep_the_order_of_their_lists(conf: Path) -> None:
    _write(conf, "here", "capture: {field_renames: 'a.b.c:d, a.b.d:e', field_exclude_list: r.s.t.u}")
    assert [str(rule) for rule in load_settings("here", conf).capture.field_policy.rules] == ["r.s.t.u", "a.b.c", "a.b.d"]


def test_the_selection_may_come_from_the_environment(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "CURSOR_PIPELINE": '[{"$match": {"fullDocument.a": 1}}]',
        "SKIPPED_OPERATIONS": "u, d",
        "COLLECTION_EXCLUDE_LIST": "[a-c].*, shop.x",
        "FIELD_HASH_LIST": "*.*.mail",
        "FIELD_HASH_SALT": _SECRET,
    }.items():
        monkeypatch.setenv(f"STRANDLINE_CAPTURE__{name}", value)
    capture = load_settings("here", conf).capture
    assert capture.user_pipeline.stages == ({"$match": {"fullDocument.a": 1}},)
    assert (capture.skipped_operations, capture.collection_exclude_list) == (("u", "d"), ("[a-c].*", "shop.x"))
    assert capture.field_policy.salt == _SECRET.encode()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("silver: {columns: {orders: {total: int}}}", "columns: 'orders' is no database.collection"),
        ("silver: {columns: {shop.: {total: int}, .orders: {total: int}}}", "'.orders' is no database.collection"),
        ("silver: {history: scd2, history_collections: 'shop.a, orders'}", "history_collections: 'orders' is no database.collection"),
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
def test_what_would_never_apply_is_refused(conf: Path, wrong: str, reason: str) -> None:
    _write(conf, "here", wrong)
    assert reason in _refusal(conf)


def test_suites_stand_in_the_conf_folder_or_come_with_the_package(conf: Path) -> None:
    _write(conf, "here", "")
    assert load_settings("here", conf).quality.suites_dir is None
    (conf / "quality").mkdir()
    (conf / "quality" / "a.yml").write_text("table: silver.a", encoding="utf-8")
    assert load_settings("here", conf).quality.suites_dir == str(conf / "quality")
    _write(conf, "here", "quality: {suites_dir: elsewhere}")
    assert load_settings("here", conf).quality.suites_dir == "elsewhere"


@pytest.mark.parametrize("folder", ["s3://bucket/pages", "dbfs:/pages", "abfss://c@a.dfs.core.windows.net/pages"])
def test_pages_are_written_to_no_uri(conf: Path, folder: str) -> None:
    _write(conf, "here", f"quality: {{docs_dir: '{folder}'}}")
    assert "quality.docs_dir: " in _refusal(conf)
    _write(conf, "here", "quality: {docs_dir: /Volumes/main/shop_control/quality_docs}")
    assert load_settings("here", conf).quality.docs_dir == "/Volumes/main/shop_control/quality_docs"


# scenario: T09
def test_files_are_kept_for_longer_than_anybody_may_be_away(conf: Path) -> None:
    _write(conf, "here", "maintenance: {max_downtime_hours: 200, retention_hours: 100}")
    with pytest.raises(ConfigurationError, match=r"retention_hours \(100\) is shorter than max_downtime_hours \(200\)"):
        load_settings("here", conf)


def test_tombstones_are_kept_for_an_hour_at_least_or_for_ever(conf: Path) -> None:
    _write(conf, "here", "maintenance: {tombstone_retention_hours: null}")
    assert load_settings("here", conf).maintenance.tombstone_retention_hours is None
    _write(conf, "here", "maintenance: {tombstone_retention_hours: 0}")
    with pytest.raises(ConfigurationError, match="tombstone_retention_hours"):
        load_settings("here", conf)
