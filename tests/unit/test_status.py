"""What `status` shows, once and again and again."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from strandline.commands.status import ShownStatus, show, statuses
from strandline.commands.terminal import out


def look(batch: int, **offset: Any) -> ShownStatus:
    found = {"source": "shop", "batch": batch, "resume_token": "82" * 200, "headroom_seconds": None, **offset}
    tables = [{"table": "silver.orders", "live": 10, "newest_change": None}]
    return ShownStatus(datetime(2026, 1, 31, 12, 0, 5, 99, UTC), found, tables, {"total-retries": 0}, None)


def three() -> Iterator[ShownStatus]:
    return iter([look(1), look(2, warning="[soon] forgotten"), look(3)])


def test_looks_follow_each_other_until_they_are_stopped() -> None:
    stop, seen = threading.Event(), []

    def count() -> ShownStatus:
        seen.append(len(seen))
        if len(seen) == 3:
            stop.set()
        return look(len(seen))

    assert [each.offset["batch"] for each in statuses(count, 0.001, stop)] == [1, 2, 3]
    assert [each.offset["batch"] for each in statuses(count, 60, stop)] == [4], "one look there is, and then no wait"


def test_a_file_gets_a_line_for_the_source_and_one_for_each_table(capsys: pytest.CaptureFixture[str]) -> None:
    show(three(), out, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "2026-01-31T12:00:05+00:00 source=shop batch=1",
        "2026-01-31T12:00:05+00:00 table=silver.orders live=10",
    ]
    assert len(lines) == 6


def test_an_operation_type_that_is_not_known_has_a_line() -> None:
    """E12."""
    (line, _) = replace(look(1), unknown_operations=("someFutureType",)).log()
    assert "unknown_operations=someFutureType: stored in bronze, and silver ignores them" in line


def test_a_machine_gets_one_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(three(), out, as_json=True)
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [document["offset"]["batch"] for document in documents] == [1, 2, 3]
    assert [set(document) for document in documents] == [
        {"at", "offset", "unknown_operations", "silver", "gold", "engines", "errors", "quality", "proof", "scheduled"}
    ] * 3


def test_a_terminal_gets_one_picture_that_changes() -> None:
    drawn = io.StringIO()
    show(three(), Console(file=drawn, force_terminal=True, width=120, height=40), as_json=False)
    shown = drawn.getvalue()
    last = shown[shown.rindex("source") :]
    assert "silver.orders" in last
    assert "Ctrl-C ends" in last
    assert "\x1b[2K" in last or "\x1b[1A" in shown, "drawn over the one before"
    assert "[soon] forgotten" in shown
