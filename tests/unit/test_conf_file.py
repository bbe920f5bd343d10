"""Values read from configuration files and variables: YAML, lists, null."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration import refusal, write

from strandline.settings.configuration import Settings, load_settings


@pytest.mark.parametrize("text", ["source: [", "- a", "source: \udcff"])
def test_a_file_that_is_not_a_mapping_is_one_line(conf: Path, text: str) -> None:
    (conf / "here.yml").write_bytes(text.encode("utf-8", "surrogateescape"))
    message = refusal(conf)
    assert str(conf / "here.yml") in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["source: {name: a, name: b}", "source: {name: a}\n'source': {name: b}"])
def test_a_key_that_stands_twice_is_refused(conf: Path, text: str) -> None:
    write(conf, "here", text)
    assert (
        " at line 1: key name stands twice" in (message := refusal(conf))
        or " at line 2: key source stands twice" in message
    )


@pytest.mark.parametrize(
    "text", ["a: *hunter2", "a: !hunter2 b", "? [x]\n: hunter2", "a: &x [*hunter2]", "a: %hunter2"]
)
def test_a_value_that_is_not_yaml_is_never_quoted(conf: Path, text: str) -> None:
    write(conf, "here", text)
    assert str(conf / "here.yml") in (message := refusal(conf))
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "text",
    ["12:30", "0o17", "true", "1.0e3", "2013-06-01", "!!python/object/apply:os.getpid []", "[1]", "{a: 1}", "null"],
)
def test_yaml_values_of_a_wrong_type_name_their_setting(conf: Path, text: str) -> None:
    write(conf, "here", f"capture: {{max_batch_size: {text}}}")
    assert str(conf / "here.yml") in (message := refusal(conf)) or "capture.max_batch_size: " in message


@pytest.mark.parametrize("name", ["no", "on", "y", "off", "yes"])
def test_yaml_no_on_yes_stay_text(conf: Path, name: str) -> None:
    write(conf, "here", f"source: {{name: {name}}}")
    assert load_settings("here", conf).source.name == name


def test_a_key_that_yaml_takes_for_a_truth_value_is_an_unknown_key(conf: Path) -> None:
    write(conf, "here", "on: 1\nsource: {no: 1, ~: 2}")
    message = refusal(conf)
    for key in ("unknown key on ", "unknown key source.no ", "unknown key source.~ "):
        assert key in message


def test_a_time_needs_no_quotes(conf: Path) -> None:
    write(conf, "here", "capture: {start_at: 2013-06-01T00:00:00+00:00}")
    assert load_settings("here", conf).capture.start_at == "2013-06-01T00:00:00+00:00"


def test_spark_settings_arrive_as_they_are_written(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        conf, "here", "spark: {conf: {spark.ui.enabled: true, spark.port: 4040, spark.version: 4.10, spark.word: 'no'}}"
    )
    written = {"spark.ui.enabled": "true", "spark.port": "4040", "spark.version": "4.10", "spark.word": "no"}
    assert load_settings("here", conf).spark.conf == written
    monkeypatch.setenv("STRANDLINE_SPARK__CONF", '{"spark.port": 4041, "spark.ui.enabled": false}')
    assert load_settings("here", conf).spark.conf == written | {"spark.port": "4041", "spark.ui.enabled": "false"}


@pytest.mark.parametrize("text", ["source:\ncapture:\n", "source: ~", "spark:\n  conf:\n", "# all of it is a comment"])
def test_a_section_with_nothing_under_it_changes_nothing(conf: Path, text: str) -> None:
    write(conf, "here", text)
    assert load_settings("here", conf) == Settings(target="here")


def test_an_empty_section_keeps_what_the_base_says(conf: Path) -> None:
    write(conf, "base", "source: {name: base}\nspark: {conf: {a: b}}")
    write(conf, "here", "source:\nspark:\n  conf:\n")
    settings = load_settings("here", conf)
    assert (settings.source.name, settings.spark.conf) == ("base", {"a": "b"})


def test_null_in_a_file_or_variable_unsets(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conf, "here", "spark: {master: ~}\nlake: {catalog: main}")
    monkeypatch.setenv("STRANDLINE_LAKE__CATALOG", "null")
    settings = load_settings("here", conf)
    assert (settings.spark.master, settings.lake.catalog) == (None, None)


@pytest.mark.parametrize(
    "written", ["shop.orders, shop.items", "shop.orders,shop.items", " shop.orders ,, shop.items , "]
)
def test_lists_may_be_written_as_debezium_does(conf: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    write(conf, "here", f"capture: {{collection_include_list: '{written}'}}")
    assert load_settings("here", conf).capture.collection_include_list == ("shop.orders", "shop.items")
    monkeypatch.setenv("STRANDLINE_CAPTURE__DATABASE_INCLUDE_LIST", written)
    assert load_settings("here", conf).capture.database_include_list == ("shop.orders", "shop.items")


def test_lists_may_be_written_as_yaml_does(conf: Path) -> None:
    write(conf, "here", "capture: {collection_include_list: ['shop\\..*', 'crm\\.people']}")
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
    monkeypatch.setenv(
        "STRANDLINE_CAPTURE__FILTERS_MATCH_MODE", "literal"
    )  # what is no regular expression is seen, too
    monkeypatch.setenv("STRANDLINE_CAPTURE__DATABASE_EXCLUDE_LIST", written)
    assert load_settings("here", conf).capture.database_exclude_list == entries


def test_a_regular_expression_with_a_comma_may_stand_in_a_file(conf: Path) -> None:
    write(conf, "here", "capture: {database_include_list: 'salary_[0-9]{1,2}'}")
    assert load_settings("here", conf).capture.database_include_list == ("salary_[0-9]{1,2}",)


def test_a_list_in_the_environment_is_one_of_text(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_CAPTURE__DATABASE_INCLUDE_LIST", '["a", 5]')
    assert "capture.database_include_list.1: " in refusal(conf)


def test_a_list_that_is_none_is_refused(conf: Path) -> None:
    write(conf, "here", "capture: {collection_include_list: {a: 5}}")
    assert "capture.collection_include_list:" in refusal(conf)
