"""What the command prints."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import typer
from command_line import parsed

from strandline import cli
from strandline.commands.pipeline import named
from strandline.commands.sources import state_line
from strandline.commands.terminal import at_most, print_record, print_rows, program
from strandline.control.sources import SourceState
from strandline.errors import StrandlineError


def test_text_in_brackets_is_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "[bold]a[/b] [link=x]"
    print_rows([{"key [red]": hostile}])
    print_record({"key": hostile})
    shown = capsys.readouterr().out
    assert shown.count(hostile) == 2
    assert "key [red]" in shown
    print_rows([{"key": hostile}], as_json=True)
    assert json.loads(capsys.readouterr().out) == [{"key": hostile}]


def test_none_is_a_dash_a_list_has_no_brackets_and_a_long_id_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({"warning": None, "retyped": (), "changes": (("total", "int", "double"), ("at", "text", "date"))})
    assert [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()] == [
        "–",
        "–",
        "total int double, at text date",
    ]
    ids = {name: f"{name}" + "0123456789abcdef" * 4 for name in "abc"}
    print_rows([ids])
    shown = "".join(re.findall(r"[0-9a-f]+", capsys.readouterr().out))
    assert sorted(shown) == sorted("abc" + "".join(ids.values()))


def test_a_table_with_more_columns_than_fit_has_a_line_for_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    row = {f"column_{number}": number for number in range(19)} | {"_document": b"\0" * 1200}
    print_rows([row, row])
    lines = capsys.readouterr().out.splitlines()
    assert (lines.count("row 1"), lines.count("row 2"), len(lines)) == (1, 1, 42)
    assert [lines[1].split(), lines[20].split(maxsplit=1)] == [["column_0", "0"], ["_document", "1,200 bytes"]]
    print_rows([dict(list(row.items())[:8])])
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_a_time_in_json_is_iso_8601(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({"at": datetime(2026, 1, 31, 12, tzinfo=UTC), "day": date(2026, 1, 31)}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"at": "2026-01-31T12:00:00+00:00", "day": "2026-01-31"}


def test_rows_that_are_not_shown_are_told_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert at_most(3, [1, 2, 3]) == [1, 2, 3]
    assert capsys.readouterr().err == ""
    assert at_most(2000, list(range(2001))) == list(range(2000))
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "only the first 2,000 rows are shown; --limit shows more\n")
    assert parsed(["sql", "select 1", "--limit", "5"])[0] == ["sql"]


def test_the_line_of_a_source_says_its_state_and_who_set_it() -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert state_line(SourceState("shop"), "start its process") == "shop may run → start its process"
    assert (
        state_line(SourceState("shop", "stopped", at, "ops"), "")
        == "shop is stopped since 2026-01-31 12:00:00 UTC, set by ops"
    )


@pytest.mark.parametrize("on_path", [True, False])
def test_advice_names_the_command_as_it_can_be_typed(
    on_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tmp_path / "a b" / "strandline"
    command.parent.mkdir()
    command.touch(0o755)
    monkeypatch.setenv("PATH", str(command.parent) if on_path else "/nowhere")
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    monkeypatch.setattr("sys.argv", [str(command), "dead-letters", "purge", "--before", "yesterday"])
    expected = "strandline" if on_path else f"'{command}'"
    assert program() == expected
    monkeypatch.setattr(
        "strandline.commands.dead_letters.TIME_EXAMPLE",
        "strandline run --once, then strandline silver; not strandline.yml",
    )
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err.endswith(f"→ {expected} run --once, then {expected} silver; not strandline.yml\n")


def test_a_program_started_under_another_name_is_called_strandline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/x/pipelines/strandline/cli.py"])
    assert program() == "strandline"


def test_silver_accepts_once_and_its_help_says_that_it_always_stops() -> None:
    assert parsed(["silver", "--once"])[0] == ["silver"]
    (option,) = [each for each in typer.main.get_command(cli.app).commands["silver"].params if each.name == "once"]  # type: ignore[attr-defined]  # why: a group
    assert "always stops" in option.help


@pytest.mark.parametrize(("code", "told"), [(0, None), (4, "the command ended with exit code 4 → see its output")])
def test_on_databricks_an_exit_code_is_an_error(monkeypatch: pytest.MonkeyPatch, code: int, told: str | None) -> None:
    def ends() -> None:
        raise typer.Exit(code)

    other = typer.Typer()
    other.command()(ends)
    monkeypatch.setattr(cli, "app", other)
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    monkeypatch.setattr("sys.argv", ["strandline"])
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18")
    monkeypatch.setattr(cli, "_as_typed", str)  # it looks for the commands of the real app
    if told is None:
        cli.main()
        return
    with pytest.raises(StrandlineError) as raised:
        cli.main()
    assert str(raised.value) == told


def test_a_jobs_parameter_that_nobody_set_names_no_collection() -> None:
    assert (named(None), named([""]), named(["shop.orders", ""])) == ([], [], ["shop.orders"])
