"""Mistakes of a new user. The tables of docs/mistakes.md are the cases: input, answer, and exit code."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest
from documents import ROOT
from typer.testing import CliRunner

from strandline.cli import app
from strandline.errors import StrandlineError

LIST = " → correct the named keys; strandline explain settings lists every one"
SECRET = "hunter2"
SECONDS = 5
"""Maximum CPU time of an answer."""
PAGE = (ROOT / "docs" / "mistakes.md").read_text(encoding="utf-8")


def table(heading: str) -> list[tuple[str, str, int]]:
    """Return input, answer and exit code of each row below a heading of the page. ` …` is the rest of an answer."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if re.match(r"\| (`|nothing)", line)]
    return [
        (
            "" if typed == "nothing" else typed.strip("`").replace(r"\n", "\n").replace(r"\t", "\t"),
            answer.replace(r"\*", "*").removesuffix(" …"),
            int(code[0]),
        )
        for typed, answer, _, code in rows
    ]


FILES, VARIABLES, TYPED = map(table, ("In a file", "In the environment", "At the command line"))


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


def test_the_page_counts_its_mistakes() -> None:
    assert min(len(FILES), len(VARIABLES), len(TYPED)) >= 8
    assert f"\n{len(FILES) + len(VARIABLES) + len(TYPED)} mistakes of a new user" in PAGE


@pytest.mark.parametrize(("content", "line", "code"), FILES)
def test_a_wrong_file_names_line_key_and_cause_and_no_secret(project: Path, content: str, line: str, code: int) -> None:
    (project / "conf" / "local.yml").write_text(content)
    assert answer("status") == (f"conf/local.yml: {line}{LIST}", code)
    assert SECRET not in line


@pytest.mark.parametrize(("variable", "line", "code"), VARIABLES)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, line: str, code: int) -> None:
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    assert answer("status") == (f"{line}{LIST}", code)
    assert line.startswith(f"environment {name}: ")
    assert SECRET not in line


@pytest.mark.parametrize(("typed", "line", "code"), TYPED)
def test_a_mistake_at_the_command_line_is_answered(typed: str, line: str, code: int) -> None:
    message, exit_code = answer(*shlex.split(typed))
    assert line in message
    assert exit_code == code


def test_text_after_two_dashes_is_an_argument() -> None:
    message, _ = answer("explain", "--", "--target")
    assert "there is no page '--target'" in message
