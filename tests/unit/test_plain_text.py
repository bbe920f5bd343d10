"""Text from outside forges no log line, controls no terminal, and shows no values of documents."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.commands.status import ShownStatus
from strandline.commands.terminal import Terminal, as_lines, as_table
from strandline.control.logs import JsonFormatter, TextFormatter
from strandline.errors import ConfigurationError, one_line
from strandline.io.spark import session
from strandline.model.bson.merge_key import key_name
from strandline.plain_text import printable, printable_json, stack_trace, without_values

HOSTILE = "orders\n2026-01-31T12:00:00.000+00:00 ERROR forged\r\x1b[31m\x9b2J\x07\x7f\u2028\u202eevil\u2066 [red]:fire:"
SECRET = "ada@" + "example.org"
any_text = st.text(st.characters())  # lone surrogates, too
_BIDI = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


def commands_in(text: str) -> list[str]:
    """Characters that are more than a picture, by Unicode's own word."""
    kinds = ((char, unicodedata.category(char), unicodedata.bidirectional(char)) for char in text)
    return [
        char
        for char, kind, bidi in kinds
        if kind in ("Cc", "Zl", "Zp", "Cs") or bidi in _BIDI or char in "\u200e\u200f\u061c"
    ]


def record(message: str, *args: Any, error: BaseException | None = None, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord(
        "strandline.x", logging.INFO, "x.py", 1, message, args, (type(error), error, None) if error else None
    )
    made.created = 1769860800.0625
    for name, value in more.items():
        setattr(made, name, value)
    return made


@given(any_text)
@example(HOSTILE)
def test_a_printable_text_holds_no_command_and_any_other_text_stays(text: str) -> None:
    shown = printable(text)
    assert commands_in(shown) == []
    assert printable(shown) == shown
    if not commands_in(text):
        assert shown == text


@given(any_text)
@example(HOSTILE)
def test_a_log_message_with_line_breaks_is_one_line(text: str) -> None:
    line = TextFormatter().format(record("collection %s", text))
    assert commands_in(line) == []
    as_json = JsonFormatter().format(record("collection %s", text, context={"name": text}))
    assert commands_in(as_json) == []
    found = json.loads(as_json)
    assert found["context"]["name"] == text, "lossless"
    assert found["message"] == printable(f"collection {text}")


@given(any_text)
@example(HOSTILE)
def test_an_error_with_line_breaks_is_one_line(text: str) -> None:
    assert commands_in(str(ConfigurationError(f"there is no {text}", next_step=text))) == []
    assert commands_in(one_line(OSError(text))) == []
    assert commands_in(one_line(ValueError(text))) == []


@given(any_text)
@example(HOSTILE)
def test_control_sequences_are_shown_and_not_obeyed(text: str) -> None:
    drawn = io.StringIO()
    terminal = Terminal(file=drawn, width=10_000, force_terminal=True, color_system=None)
    for shown in (text, as_lines({"name": text}), as_table([{"name": text}])):
        terminal.print(shown, highlight=False)
    breaks = 1 + 1 + 5  # the text, the line, the table with its borders
    assert [char for char in commands_in(drawn.getvalue()) if char != "\n"] == []
    assert drawn.getvalue().count("\n") == breaks
    assert drawn.getvalue().count(printable(text)) >= 3 or not text.strip()


@given(
    st.recursive(
        any_text, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3), max_leaves=5
    )
)
@example({HOSTILE: HOSTILE})
def test_json_is_lossless_and_obeyed_by_no_terminal(value: Any) -> None:
    for indent in (None, 2):
        text = printable_json(value, indent=indent)
        assert [char for char in commands_in(text) if char != "\n"] == []
        assert json.loads(text) == value


def test_a_line_of_status_is_one_line() -> None:
    look = ShownStatus(datetime(2026, 1, 31, tzinfo=UTC), {"source": "shop"}, [{"table": HOSTILE}], None, None)
    assert [commands_in(line) for line in look.log()] == [[], []]


def test_log_lines_tell_milliseconds_in_utc() -> None:
    at = "2026-01-31T12:00:00.062+00:00"
    assert TextFormatter().format(record("a %s", "b")) == f"{at} INFO a b"
    assert json.loads(JsonFormatter().format(record("a"))) == {
        "at": at,
        "level": "INFO",
        "logger": "strandline.x",
        "message": "a",
    }


def raised() -> ValueError:
    try:
        try:
            int(SECRET + "\n2026 forged")
        except ValueError as inner:
            raise ValueError(f"no number: '{SECRET}'") from inner
    except ValueError as error:
        return error
    raise AssertionError


def test_a_stack_trace_shows_frames_and_no_value() -> None:
    trace = stack_trace(raised())
    assert trace.count("Traceback") == 2
    assert "in raised" in trace
    assert [line for line in trace.splitlines() if not line.startswith(("Traceback", " "))] == [
        "ValueError: invalid literal for int() with base 10: '…'",
        "ValueError: no number: '…'",
    ]
    lines = TextFormatter().format(record("failed", error=raised())).splitlines()
    assert [line for line in lines if re.match(r"\d{4}-", line)] == lines[:1]
    assert (
        json.loads(JsonFormatter().format(record("failed", error=raised())))["exception"][-1]
        == "ValueError: no number: '…'"
    )


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device", "/lake/x"), "[Errno 28] No space left on device: '/lake/x'"),
        (ValueError("the value 'a' isn't b"), "the value '…' isn't b"),
        (KeyError("secret"), "'…'"),
        (RuntimeError(""), "RuntimeError"),
        (
            RuntimeError(
                "called o1.x\n: org.apache.spark.SparkException: Job aborted\n\tat x\n"
                "Caused by: java.io.IOException: no space"
            ),
            "no space",
        ),
        (
            RuntimeError("o1\nCaused by: org.apache.spark.SparkDateTimeException: [CAST_X.Y] The value secret of"),
            "[CAST_X.Y]",
        ),
    ],
)
def test_each_error_is_shown_as_one_line(error: Exception, told: str) -> None:
    assert without_values(error) == told


def test_a_key_is_named_by_its_hash() -> None:
    assert key_name("1") == "key #6b86b273ff34"
    assert key_name("1", show=True) == "key 1"
    assert key_name('"ada@example.org"') == "key #" + key_name('"ada@example.org"').removeprefix("key #")
    assert len(key_name("x" * 1000, show=True)) == 304
    assert key_name("\ud800")


def test_unexpected_errors_of_the_command_are_told_without_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from strandline import cli

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # put back afterwards
    monkeypatch.setattr("sys.argv", ["strandline", "version"])
    cli.main()
    error = raised()
    sys.excepthook(type(error), error, error.__traceback__)
    told = capsys.readouterr().err
    assert "in raised" in told
    assert SECRET not in told


def test_a_stack_trace_shows_frames_of_the_jvm_without_the_messages_between() -> None:
    frames = "\tat org.a.B$.c(B.scala:1)\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
    text = f"called o1.x\n: java.lang.Error: {SECRET}\n{frames}"
    trace = stack_trace(
        RuntimeError(text + f"Caused by: java.io.IOException: '{SECRET}'\n\tat d.E.f(Native Method)\n\tat {SECRET}")
    )
    frames = [line for line in trace.splitlines() if line.startswith("  at ")]
    assert frames == [
        "  at org.a.B$.c(B.scala:1)",
        "  at java.base/java.lang.Thread.run(Thread.java:840)",
        "  at d.E.f(Native Method)",
    ]
    assert SECRET not in trace


def test_the_jvm_logs_one_line_for_each_message_and_no_text_of_an_exception() -> None:
    pattern = (Path(session.__file__).with_name("log4j2.properties")).read_text(encoding="utf-8")
    assert "%enc{%m}{CRLF}%ex{none}%n" in pattern
