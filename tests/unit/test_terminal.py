"""What the command prints."""

from __future__ import annotations

import json

import pytest

from pipelines.commands.terminal import print_record, print_rows


def test_text_in_brackets_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "[bold]a[/b] [link=x]"
    print_rows([{"key [red]": hostile}])
    print_record({"key": hostile})
    shown = capsys.readouterr().out
    assert shown.count(hostile) == 2
    assert "key [red]" in shown
    print_rows([{"key": hostile}], as_json=True)
    assert json.loads(capsys.readouterr().out) == [{"key": hostile}]
