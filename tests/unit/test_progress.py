"""Progress: how far a step is, as text, as bars, and as lines of the log."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from strandline.commands.progress import Bars, Lines, description, shown_progress
from strandline.control.logs import LogFormat, set_up_logging
from strandline.io.telemetry.progress import PROGRESS, Progress, Step


class Record:
    """Display that keeps the names of steps."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.at_work: list[str] = []

    def begin(self, step: Step) -> None:
        self.begun.append(step.name)
        self.at_work.append(step.name)

    def end(self, step: Step) -> None:
        self.at_work.remove(step.name)


@pytest.fixture
def log_of_the_process() -> Iterator[None]:
    """The log is set up anew by a test, and afterwards it is as before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level


@pytest.mark.parametrize(
    ("seconds", "step", "text"),
    [
        (0.2, Step("silver"), "0 s"),
        (30.2, Step("silver", item="silver.orders"), "30 s, silver.orders"),
        (0.2, Step("silver", unit="tables", total=3), "0 of 3 tables, 0 s"),
        (30.2, Step("silver", unit="events", count=120_000), "120,000 events, 30 s, 3,974/s"),
        (90.2, Step("silver", unit="tables", total=3, count=1), "1 of 3 tables, 1 min 30 s, 90 s each, 3 min 0 s left"),
        (90.2, Step("silver", unit="tables", total=3, count=3), "3 of 3 tables, 1 min 30 s, 30 s each"),
        (10.2, Step("silver", unit="chunks", total=9, count=5, earlier=4), "5 of 9 chunks, 10 s, 10 s each, 41 s left"),
        (0.2, Step("silver", item="a\n\x1b[31m"), "0 s, a\\n\\x1b[31m"),
    ],
)
def test_a_step_tells_count_time_rate_and_time_left(seconds: float, step: Step, text: str) -> None:
    assert description(step, seconds) == text


def test_a_step_counts_what_its_threads_complete_and_ends_with_an_error() -> None:
    progress, display = Progress(), Record()
    with progress.step("unseen", "tables", 2) as step:
        assert step.counting(len)("ab") == 2
    progress.display = display
    with progress.step("silver", "tables", 40) as step, ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(step.counting(len), ["ab"] * 40)) == 80
    assert (step.count, step.item, display.at_work) == (40, "ab", [])
    step = Step("gold", "views", 2)
    assert [(item, step.count, step.item) for item in step.over(["a", "b"])] == [("a", 0, "a"), ("b", 1, "b")]
    assert step.count == 2
    with pytest.raises(ZeroDivisionError), progress.step("gold"):
        assert 1 / len(display.at_work[1:])
    with progress.step("idle", "tables", 0):
        pass
    assert (display.begun, display.at_work) == (["silver", "gold"], [])


@pytest.mark.parametrize("width", [40, 140])
def test_bars_fit_the_terminal_and_leave_nothing_behind(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    bars = Bars(shown, force_terminal=True, width=width, no_color=True)
    first, second = Step("silver", "tables", 3), Step("snapshot", "chunks", 9)
    for step in (first, second):
        bars.begin(step)
    bars.show()
    sys.stderr.write("a line of the log\n")
    bars.end(first)
    bars.end(second)
    text = shown.getvalue()
    assert "0 of 3" in text
    assert "a line of the log" in text
    assert sys.stderr is shown, "the proxy is gone"
    bars.begin(first)
    bars.end(first)
    bars.show()
    assert shown.getvalue() == text, "a short step is never shown"


class Gone(io.StringIO):
    """A terminal that has hung up."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error", text)


def test_a_terminal_that_is_gone_ends_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", gone := Gone())
    bars, step = Bars(gone, force_terminal=True), Step("silver")
    bars.begin(step)
    bars.show()
    bars.end(step)
    assert sys.stderr is gone


class Twice(threading.Event):
    """End of a step that comes after two waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return len(self.waits) > 2


def test_without_a_terminal_a_step_is_a_line_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    end = Twice()
    Lines().repeat(Step("maintain", "tables", 7), end)
    told = [message.rpartition(",")[0] for message in caplog.messages]
    assert (end.waits, told) == ([10.0, 10.0, 10.0], ["maintain: 0 of 7 tables"] * 2)


@pytest.mark.parametrize(
    ("bars", "is_terminal", "term", "kind"),
    [
        (True, True, "xterm", Bars),
        (True, True, "dumb", Lines),
        (True, False, "xterm", Lines),
        (False, True, "xterm", Lines),
    ],
)
def test_bars_need_a_terminal_that_can_show_them(
    monkeypatch: pytest.MonkeyPatch, bars: bool, is_terminal: bool, term: str, kind: type
) -> None:
    error = io.StringIO()
    monkeypatch.setattr(error, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", error)
    monkeypatch.setenv("TERM", term)
    with shown_progress(bars=bars):
        assert isinstance(PROGRESS.display, kind)
    assert PROGRESS.display is None


@pytest.mark.parametrize(
    ("is_terminal", "log_format", "line"),
    [
        (True, "auto", r"\d\d:\d\d:\d\d warning: 2 chunks"),
        (False, "auto", r"\{.*all of 2 chunks.*\}"),
        (False, "text", r"\S+T\S+ WARNING all of 2 chunks"),
        (True, "text", r"\S+T\S+ WARNING all of 2 chunks"),
        (True, "json", r"\{.*all of 2 chunks.*\}"),
    ],
)
@pytest.mark.usefixtures("log_of_the_process")
def test_a_terminal_gets_short_lines(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, log_format: LogFormat, line: str
) -> None:
    error = io.StringIO()
    monkeypatch.setattr(error, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", error)
    set_up_logging(log_format)
    logging.getLogger("strandline").warning("all of %d chunks", 2, extra={"brief": "2 chunks"})
    assert re.fullmatch(line + "\n", error.getvalue())


@pytest.mark.usefixtures("log_of_the_process")
def test_the_log_goes_to_what_is_standard_error_now(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up_logging("text")
    later = io.StringIO()
    monkeypatch.setattr(sys, "stderr", later)
    logging.getLogger("strandline").warning("seen")
    assert later.getvalue().endswith("WARNING seen\n")
