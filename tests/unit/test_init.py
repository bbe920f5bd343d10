"""``strandline init``: a project that passes the program's own checks, and no file is overwritten."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from strandline.cli import app
from strandline.errors import ConfigurationError
from strandline.project.scaffold import Project, files_of, write_project
from strandline.settings.configuration import load_settings

_CATALOG = ["--name", "crm", "--database", "crm_db", "--collection", "people", "--lake", "catalog:main"]


def initialized(folder: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["init", str(folder), *arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("lake", "root"), [("lake", "lake"), ("/data/lake", "/data/lake"), ("s3://bucket/lake", "s3://bucket/lake")]
)
def test_a_lake_in_a_place_of_your_own_gets_no_bundle(tmp_path: Path, lake: str, root: str) -> None:
    initialized(tmp_path, "--lake", lake)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {
        ".gitignore",
        "Makefile",
        "README.md",
        "conf/base.yml",
        "conf/local.yml",
        "conf/gold/daily_orders.sql",
        "conf/gold/tests/daily_orders.yml",
        "conf/quality/orders.yml",
    }
    assert load_settings("local", tmp_path / "conf").lake.root == root
    assert "Databricks" not in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_a_catalog_gets_a_bundle_and_its_targets(tmp_path: Path) -> None:
    initialized(tmp_path, *_CATALOG)
    assert yaml.safe_load((tmp_path / "databricks.yml").read_text(encoding="utf-8"))["bundle"]["name"] == "crm"
    for target in ("local", "dev", "staging", "prod"):
        settings = load_settings(target, tmp_path / "conf", {"lake": {"catalog": "main"}})
        assert (settings.source.name, settings.capture.target) == ("crm", "crm_db")
    assert "${var.service_principal}" in (tmp_path / "databricks.yml").read_text(encoding="utf-8")
    ignored = (tmp_path / ".gitignore").read_text(encoding="utf-8").split()
    assert ".databricks/" in ignored, "a deploy's host and state"
    assert "dist/" in ignored, "the wheel comes from a volume"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        _CATALOG,
        ["--lake", "catalog:main", "--compute", "classic"],
        ["--database", "on", "--lake", "a lake: #1"],
        ["--database", "2020", "--collection", "2020"],
    ],
)
def test_the_project_passes_the_offline_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    initialized(tmp_path, *arguments)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRANDLINE_SOURCE__URI", raising=False)
    checked = CliRunner().invoke(app, ["doctor", "--offline"])
    assert checked.exit_code == 0, checked.output
    for line in ("1 views and tables, conf/gold", "1 cases, conf/gold/tests", "1 suites, conf/quality", "no URI"):
        assert line in checked.output


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("conf/base.yml", "sorce: {}", "unknown key sorce"),
        ("conf/gold/daily_orders.sql", "SELEC 1", "daily_orders"),
        ("conf/gold/tests/daily_orders.yml", "- {name: a}", "daily_orders"),
        ("conf/quality/orders.yml", "table: nowhere.orders", "orders"),
    ],
)
def test_the_offline_check_sees_a_wrong_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, told: str
) -> None:
    initialized(tmp_path)
    (tmp_path / file).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    checked = CliRunner().invoke(app, ["doctor", "--offline"])
    assert isinstance(checked.exception, ConfigurationError)
    assert told in str(checked.exception)


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    mine = {name: f"mine: {name}" for name in files_of(Project(catalog="main"))}
    for name, text in mine.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "README.md").unlink()
    written, kept = write_project(tmp_path, Project(catalog="main"))
    assert (written, sorted(kept)) == (["README.md"], sorted(set(mine) - {"README.md"}))
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in kept} == {name: mine[name] for name in kept}


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--name", "My Shop", "name 'My Shop' has a character that cannot be used here → Lower-case letters"),
        ("--database", "a/b", "database 'a/b' has a character"),
        ("--lake", "catalog:", "catalog: names no catalog → write --lake catalog:NAME"),
        ("--lake", "a'b", 'root "a\'b" has a character'),
        ("--compute", "classic", "--compute is about Databricks"),
        ("--warehouse", "SQL", "--warehouse is about Databricks"),
        ("--lake", "catalog:a b", "catalog 'a b' has a character"),
        ("--lake", "a\nb", "root 'a\\nb' has a character"),
    ],
)
def test_a_name_that_would_break_a_file_is_refused(tmp_path: Path, option: str, value: str, told: str) -> None:
    refused = CliRunner().invoke(app, ["init", str(tmp_path / "new"), option, value])
    assert isinstance(refused.exception, ConfigurationError)
    assert str(refused.exception).startswith(told)
    assert not (tmp_path / "new").exists()


def test_an_unknown_compute_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["init", str(tmp_path), "--lake", "catalog:main", "--compute", "fast"])
    assert isinstance(refused.exception, ConfigurationError)
    assert str(refused.exception) == "compute 'fast' is unknown → one of serverless, classic"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(app, ["init", str(tmp_path / "file")])
    assert isinstance(refused.exception, ConfigurationError)
    assert "cannot be written" in str(refused.exception)


def test_the_sample_of_a_workflow_passes_the_linter_of_workflows(tmp_path: Path) -> None:
    initialized(tmp_path, *_CATALOG)
    linter = Path(sys.executable).with_name("zizmor")
    command = [str(linter), "--offline", "--quiet", "--no-progress", str(tmp_path / ".github")]
    linted = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_a_terminal_is_asked_for_what_no_option_says(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [
        str(Path(sys.executable).with_name("strandline")),
        "init",
        str(tmp_path / "shop"),
        "--database",
        "crm_db",
        "--databricks",
    ]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True) as asking:
        os.close(theirs)
        shown = ""
        for question, answer in (
            ("(not shown; empty: later): ", "\n"),
            ("Name of the source [crm_db]: ", "crm\n"),
            ("One of its collections, for the first gold view [orders]: ", "people\n"),
            ("catalog:NAME of Unity Catalog [catalog:main]: ", "\n"),
            ("(empty: as the CLI's profile says): ", "https://adb-1.2.azuredatabricks.net/\n"),
            ("aws, azure or gcp [azure]: ", "\n"),
            ("(empty: without both): ", "\n"),
            ("serverless or classic [serverless]: ", "\n"),
        ):
            while question not in shown:
                shown += os.read(ours, 4096).decode()
            os.write(ours, answer.encode())
            shown = ""
        while "next " not in shown:
            shown += os.read(ours, 4096).decode()
        assert asking.wait(timeout=60) == 0
    os.close(ours)
    base = yaml.safe_load((tmp_path / "shop" / "conf" / "base.yml").read_text(encoding="utf-8"))
    assert base == {"source": {"name": "crm"}, "capture": {"scope": "database", "target": "crm_db"}}
    assert (tmp_path / "shop" / "conf" / "gold" / "daily_people.sql").exists()
    assert "environment_key" in (tmp_path / "shop" / "resources" / "silver.job.yml").read_text(encoding="utf-8")
    bundle = yaml.safe_load((tmp_path / "shop" / "databricks.yml").read_text(encoding="utf-8"))
    assert bundle["targets"]["prod"]["workspace"]["host"] == "https://adb-1.2.azuredatabricks.net"
