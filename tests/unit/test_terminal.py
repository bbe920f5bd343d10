"""What the command prints."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from command_line import parsed

from pipelines.commands.sources import told
from pipelines.commands.terminal import at_most, print_record, print_rows
from pipelines.control.sources import SourceState


def test_text_in_brackets_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "[bold]a[/b] [link=x]"
    print_rows([{"key [red]": hostile}])
    print_record({"key": hostile})
    shown = capsys.readouterr().out
    assert shown.count(hostile) == 2
    assert "key [red]" in shown
    print_rows([{"key": hostile}], as_json=True)
    assert json.loads(capsys.readouterr().out) == [{"key": hostile}]


def test_rows_that_are_not_shown_are_told_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert at_most(3, [1, 2, 3]) == [1, 2, 3]
    assert capsys.readouterr().err == ""
    assert at_most(2000, list(range(2001))) == list(range(2000))
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "only the first 2,000 rows are shown; --limit shows more\n")
    assert parsed(["sql", "select 1", "--limit", "5"])[0] == ["sql"]


def test_an_order_is_no_process() -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert told(SourceState("shop"), "start its process") == "shop may run → start its process"
    assert told(SourceState("shop", "stopped", at, "ops"), "") == "shop is stopped since 2026-01-31 12:00:00 UTC, asked for by ops"
