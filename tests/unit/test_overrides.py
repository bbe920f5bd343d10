"""``--set KEY=VALUE``: any setting, repeated; a wrong key or value is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.cli import app
from strandline.errors import ConfigurationError
from strandline.settings.configuration import Settings, load_settings
from strandline.settings.overrides import overrides_of

_SECRET = "hunter2hunter2"


def loaded(*assignments: str, conf: Path) -> Settings:
    return load_settings("local", conf, overrides_of(assignments, Settings))


def test_an_override_of_each_type_is_parsed(tmp_path: Path) -> None:
    settings = loaded(
        "lake.catalog=main",
        "lake.root=null",
        "lake.schema=shop=2",
        "capture.scope=database",
        "capture.target=shop",
        "capture.collection_include_list=shop[.]a,shop[.]b",
        "silver.max_threads=7",
        "metrics.port=9400",
        'silver.columns={"shop.orders": {"total": "decimal(2)"}}',
        "engine=spark",
        conf=tmp_path,
    )
    assert (settings.lake.catalog, settings.lake.root, settings.lake.schema_prefix) == ("main", None, "shop=2")
    assert settings.capture.collection_include_list == ("shop[.]a", "shop[.]b")
    assert (settings.silver.max_threads, settings.metrics.port) == (7, 9400)
    assert settings.silver.columns["shop.orders"]
    assert settings.engine == "spark"


def test_entries_of_a_map_are_added_and_the_last_assignment_holds(tmp_path: Path) -> None:
    (tmp_path / "local.yml").write_text("spark: {conf: {a.b: file, a.c: file}}", encoding="utf-8")
    settings = loaded(
        "spark.conf.spark.sql.x=1", "spark.conf.a.b=2", "source.name=one", "source.name=two", conf=tmp_path
    )
    assert settings.spark.conf == {"a.b": "2", "a.c": "file", "spark.sql.x": "1"}
    assert settings.source.name == "two"


def test_an_assignment_goes_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_SOURCE__NAME", "environment")
    assert loaded("source.name=option", conf=tmp_path).source.name == "option"


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("lake.catalgo=main", "--set lake.catalgo: unknown key lake.catalgo (did you mean catalog?)"),
        ("lak.catalog=main", "--set lak.catalog: unknown key lak (did you mean lake?)"),
        ("lake.catalog", "--set lake.catalog: KEY=VALUE is expected"),
        ("engine", "--set engine: KEY=VALUE is expected"),
        ("target=dev", "--set target: KEY=VALUE is expected"),
        ("lake=main", "--set lake: KEY=VALUE is expected"),
        ("=main", "--set : KEY=VALUE is expected"),
        ("target=prod", "--set target: KEY=VALUE is expected"),
        ('silver.columns={"a', "--set silver.columns: the value is not valid JSON"),
    ],
)
def test_a_wrong_assignment_is_one_line(assignment: str, told: str) -> None:
    refused = CliRunner().invoke(app, ["--set", assignment, "status"])
    assert isinstance(refused.exception, ConfigurationError)
    assert str(refused.exception).startswith(told)
    assert "\n" not in str(refused.exception)


def test_a_wrong_value_is_one_line_without_the_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"silver\.max_threads: .*integer") as refused:
        loaded(f"silver.max_threads={_SECRET}", conf=tmp_path)
    assert _SECRET not in str(refused.value)


def test_a_password_is_told_and_not_quoted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loaded(f"source.uri=mongodb://app:{_SECRET}@db.example/", conf=tmp_path)
    assert [record.getMessage().startswith("--set holds a password") for record in caplog.records] == [True]
    assert _SECRET not in caplog.text
