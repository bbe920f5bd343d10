"""Progress on standard error: bars on a terminal, a log line every ten seconds elsewhere."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Any, Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from strandline.io.telemetry.progress import PROGRESS, Display, Step
from strandline.plain_text import printable

_LINE_SECONDS: Final = 10.0
_SHOWN_AFTER_SECONDS: Final = 0.5
_WIDE: Final = 100
"""Columns of a terminal from which bars are long."""
_log = logging.getLogger("strandline.progress")


def description(step: Step, seconds: float) -> str:
    """Return how far *step* is after *seconds*: its count, the time, its rate, the time left, what it works on."""
    parts = list[str]()
    if step.unit:
        of_total = "" if step.total is None else f" of {step.total:,}"
        parts.append(f"{step.count:,}{of_total} {step.unit}")
    parts.append(_duration(seconds))
    if (units := step.count - step.earlier) > 0 and seconds >= 1:
        parts.append(f"{units / seconds:,.0f}/s" if units >= seconds else f"{seconds / units:,.0f} s each")
        if step.total and step.count < step.total:
            parts.append(f"{_duration(seconds / units * (step.total - step.count))} left")
    return printable(", ".join([*parts, *filter(None, [step.item])]))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class _StepColumn(ProgressColumn):
    """Column with `description`. It is computed at each refresh, so the step need not report."""

    def render(self, task: Task) -> Text:
        step: Step = task.fields["step"]
        task.completed, task.total = step.count, step.total
        return Text(description(step, step.seconds()), no_wrap=True, overflow="ellipsis")


class _Lasting(StringIO):
    """A terminal that may be gone, as after the end of an SSH session: then what is written is lost, without an error.

    An error would end the step, whose thread draws.
    """

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file = file

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()

    def isatty(self) -> bool:
        return self._file.isatty()


class Bars:
    """Display on a terminal: one bar for each step that takes time. Log lines stand above them.

    Args:
        file: The terminal.
        console: Options of `Console`.
    """

    def __init__(self, file: TextIO, **console: Any) -> None:
        self._console, self._lock = Console(file=_Lasting(file), **console), threading.Lock()
        self._bars: Progress | None = None
        self._steps: dict[Step, TaskID | None] = {}

    def begin(self, step: Step) -> None:
        with self._lock:
            self._steps[step] = None if self._bars is None else _added(self._bars, step)
            if len(self._steps) == 1:
                timer = threading.Timer(_SHOWN_AFTER_SECONDS, self.show)
                timer.daemon = True
                timer.start()

    def show(self) -> None:
        """Show the steps that are at work, if they are not shown."""
        with self._lock:
            if self._bars is not None or not self._steps:
                return
            self._bars = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                _StepColumn(table_column=Column(ratio=1)),
                BarColumn(bar_width=20 if self._console.width >= _WIDE else 6),
                console=self._console,
                transient=True,
                redirect_stdout=False,
                expand=True,
            )
            self._bars.start()
            self._steps = {step: _added(self._bars, step) for step in self._steps}

    def end(self, step: Step) -> None:
        with self._lock:
            task = self._steps.pop(step)
            if self._bars is None or task is None:
                return
            self._bars.remove_task(task)
            if not self._steps:
                self._bars.stop()
                self._bars = None


def _added(bars: Progress, step: Step) -> TaskID:
    return bars.add_task(printable(step.name), total=step.total, step=step)


class Lines:
    """Display without a terminal: one log line for each step, every *seconds*. A shorter step has none."""

    def __init__(self, seconds: float = _LINE_SECONDS) -> None:
        self._seconds = seconds
        self._ends: dict[Step, threading.Event] = {}

    def begin(self, step: Step) -> None:
        end = self._ends[step] = threading.Event()
        threading.Thread(target=self.repeat, args=(step, end), name="strandline-progress", daemon=True).start()

    def end(self, step: Step) -> None:
        self._ends.pop(step).set()

    def repeat(self, step: Step, end: threading.Event) -> None:
        """Log how far *step* is, again and again until *end* is set."""
        while not end.wait(self._seconds):
            _log.info("%s: %s", step.name, description(step, step.seconds()))


@contextmanager
def shown_progress(*, bars: bool) -> Iterator[None]:
    """Show the progress of this process during the block.

    Args:
        bars: False: lines of the log, also on a terminal.
    """
    is_capable = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    display: Display = Bars(sys.stderr) if bars and is_capable else Lines()
    PROGRESS.display = display
    try:
        yield
    finally:
        PROGRESS.display = None
