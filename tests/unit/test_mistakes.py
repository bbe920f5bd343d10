"""Mistakes of a new user: what is typed, the line that answers, and the exit code."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.cli import app
from strandline.errors import StrandlineError

LIST = " → correct the named keys; strandline explain settings lists every one"
SECRET = "hunter2"
SECONDS = 5
"""Maximum CPU time of an answer."""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder that is the current folder. It has `conf/local.yml`, and no lake."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "local.yml").touch()
    return tmp_path


def answer(*arguments: str) -> tuple[str, int]:
    """Return the line that ends a command, and its exit code."""
    began = time.process_time()
    result = CliRunner().invoke(app, arguments)
    assert time.process_time() - began < SECONDS
    if isinstance(result.exception, StrandlineError):
        return str(result.exception), result.exception.exit_code
    return re.sub(r"[\s│─╭╮╰╯]+", " ", result.output), result.exit_code


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("source:\n  name: a\n\turi: x", "not YAML at line 3: a tab: indent with blanks (at source.uri)"),
        ("\tsource:\n", "not YAML at line 1: a tab: indent with blanks (at source)"),
        ("source: name: a", "not YAML at line 1: a second colon: put the value in quotes (at source)"),
        ("source:\n  name: a: b", "not YAML at line 2: a second colon: put the value in quotes (at source.name)"),
        (
            "lake:\n  root:x\n  catalog: y",
            "not YAML at line 3: the line above has no colon with a blank",
        ),
        ("lake:\n  root: x\n    catalog: y", ": an indentation below a key that has a value already"),
        ("lake:\n   root: x\n  catalog: y", ": an indentation that does not fit the lines above (at lake.catalog)"),
        ("lake:\n  root: [x\nsilver: {}", "line 2: a list that begins with [ and is not closed (at lake.root)"),
        ("lake: {root: x", "line 1: a map that begins with { and is not closed (at lake)"),
        (f"source:\n  uri: '{SECRET}\nlake: {{}}", "line 2: a quote that is not closed (at source.uri)"),
        (f'source:\n  uri: "{SECRET}\\d"', "line 2: a backslash in double quotes: use single quotes (at source.uri)"),
        (f"source:\n  uri: *{SECRET}", "line 2: a value that begins with * or &: put it in quotes (at source.uri)"),
        (f"source:\n  uri: !{SECRET} x", "line 2: a value that begins with !: put it in quotes (at source.uri)"),
        (
            f"source:\n  uri: @{SECRET}",
            ": a value that begins with a character of YAML: put it in quotes (at source.uri)",
        ),
        (
            f"source:\n  uri: %{SECRET}",
            ": a value that begins with a character of YAML: put it in quotes (at source.uri)",
        ),
        ("lake: {}\nlake: {}", "not YAML at line 2: key lake stands twice (at lake)"),
        ("lake: {}\n---\nlake: {}", "not YAML at line 2: a second document (at lake)"),
        ("- lake", "a mapping is expected at the top level"),
        ("capture: 5", "capture: the value should be a section with settings"),
        ("capture: {max_batch_size: many}", "capture.max_batch_size: 'many' should be an integer"),
        ("capture: {max_batch_size: 0}", "capture.max_batch_size: '0' should be greater than or equal to 1"),
        ("capture: {max_batch_size: [1]}", "capture.max_batch_size: ['1'] should be an integer"),
        ("capture: {scope: all}", "capture.scope: 'all' should be 'deployment', 'database' or 'collection'"),
        ("silver: {live_views: maybe}", "silver.live_views: 'maybe' should be true or false"),
        ("silver: {columns: id}", "silver.columns: 'id' should be a map"),
        (f"spark: {{conf: {SECRET}}}", "spark.conf: the value should be a map"),
        (f"source: {{uri: [{SECRET}]}}", "source.uri: the value should be a text"),
        (f"lake: {{s3_endpoint: 'x://a:{SECRET}@h'}}", "lake.s3_endpoint: 'x://********@h' should match pattern"),
        ("capture: {max_batch_sise: 5}", "unknown key capture.max_batch_sise (did you mean max_batch_size?)"),
    ],
)
def test_a_wrong_file_names_line_key_and_cause_and_no_secret(project: Path, content: str, line: str) -> None:
    (project / "conf" / "local.yml").write_text(content)
    message, code = answer("status")
    assert message.startswith("conf/local.yml: ")
    assert line in message
    assert (message.endswith(LIST), code, SECRET in message, "\n" in message) == (True, 2, False, False)


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("STRANDLINE_LAKE_ROOT", "x", "unknown key lake_root (did you mean STRANDLINE_LAKE__ROOT?)"),
        ("STRANDLINE_SOURCE_URI", "x", "unknown key source_uri (did you mean STRANDLINE_SOURCE__URI?)"),
        ("STRANDLINE__LAKE__ROOT", "x", "(did you mean STRANDLINE_LAKE__ROOT?)"),
        ("STRANDLINE_CAPTURE__MAX__BATCH_SIZE", "5", "(did you mean STRANDLINE_CAPTURE__MAX_BATCH_SIZE?)"),
        ("STRANDLINE_SPARK__CONF", SECRET, 'the value should be valid JSON, such as {"key": "value"}'),
        ("STRANDLINE_LAKE", SECRET, 'the value should be valid JSON, such as {"key": "value"}'),
        ("STRANDLINE_LAKE__ROT", "x", "unknown key lake.rot (did you mean root?)"),
        ("STRANDLINE_CAPTURE__MAX_BATCH_SIZE", "many", "capture.max_batch_size: 'many' should be an integer"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str) -> None:
    monkeypatch.setenv(variable, value)
    message, code = answer("status")
    assert message.startswith(f"environment {variable}: ")
    assert line in message
    assert (SECRET in message, code) == (False, 2)


@pytest.mark.parametrize(
    ("typed", "line", "code"),
    [
        ("", "Usage: strandline [OPTIONS] COMMAND [ARGS]... Bring MongoDB into a Delta lake.", 0),
        ("-h", "Usage: strandline [OPTIONS] COMMAND [ARGS]... Bring MongoDB into a Delta lake.", 0),
        ("status -h", "Usage: strandline status [OPTIONS]", 0),
        ("offsets show -h", "Usage: strandline offsets show [OPTIONS]", 0),
        ("statsu", "No such command 'statsu'. Did you mean 'status'", 2),
        ("status --target lokal", "no conf/lokal.yml: unknown target 'lokal' (did you mean local?)", 2),
        ("--target lokal status", "no conf/lokal.yml: unknown target 'lokal' (did you mean local?)", 2),
        ("status --target=lokal --json", "no conf/lokal.yml: unknown target 'lokal' (did you mean local?)", 2),
        ("offsets show --conf nowhere", "no folder nowhere", 2),
        ("stop --why --conf --conf nowhere", "no folder nowhere", 2),
        ("status --set lake.rot=x", "--set lake.rot: unknown key lake.rot (did you mean root?)", 2),
        ("status --set capture.scope=all", "--set: capture.scope: the value should be 'deployment', 'database' or", 2),
        ("status --target", "--target needs a value", 2),
        ("status --target local", "source mongo has no offset yet → strandline capture --once", 2),
        ("status --set source.name=shop", "source shop has no offset yet → strandline capture --once", 2),
        (
            "sql 'select 1 from silver.orders'",
            "there is no silver.orders → correct the name, or build the table first",
            2,
        ),
        (
            "sql 'select 1 from orders'",
            "orders has no layer, write silver.orders or gold.orders → correct the query",
            2,
        ),
        ("sql 'selec 1'", "line 1: Invalid expression / Unexpected token", 2),
        ("status --jason", "No such option: --jason", 2),
        ("explain catpure", "there is no page 'catpure' (did you mean capture?) → strandline explain lists them", 2),
    ],
)
def test_a_mistake_at_the_command_line_is_answered(typed: str, line: str, code: int) -> None:
    message, exit_code = answer(*shlex.split(typed))
    assert line in message
    assert exit_code == code


def test_text_after_two_dashes_is_an_argument() -> None:
    message, _ = answer("explain", "--", "--target")
    assert "there is no page '--target'" in message
