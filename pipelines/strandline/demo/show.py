"""Terminal output of the demo: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from strandline.demo.dataset import Document

_STEPS = 11
_NEXT = (
    "status",
    'sql "select dest, avg(delay.arrival) as late from silver.flights'
    ' where not _deleted group by dest order by late desc"',
    'sql "select op, collection, count(*) as changes from bronze.airline'
    ' where collection is not null group by all order by 1, 2"',
)


class Stages:
    """Steps of the demo with their duration."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._finished_steps = 0

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """Show *title* while the body runs. Yield a function that shows a progress text."""
        started = time.monotonic()
        if self._console.is_terminal:
            columns = (
                SpinnerColumn(),
                BarColumn(bar_width=20),
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
            )
            with Progress(*columns, console=self._console, transient=True) as progress:
                task = progress.add_task(title, total=_STEPS, completed=self._finished_steps)
                yield lambda text: progress.update(task, description=f"{title}: {text}")
        else:
            yield lambda _text: None
        self._finished_steps += 1
        self._console.print(
            Text.assemble(("✓", "green"), f" {title} ", (f"{time.monotonic() - started:5.1f} s", "dim")),
            highlight=False,
        )

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", highlight=False, markup=False)

    def show(self, table: Table) -> None:
        self._console.print(table)

    def close(self, lake: Path, prefix: str) -> None:
        """Print the total time and commands to try next. *prefix* is the command line for that lake."""
        text = f"Done in {time.monotonic() - self._started:.0f} s. The lake stays in {lake}. Try:"
        self._console.print()
        self._console.print(text, highlight=False, markup=False)
        for command in _NEXT:
            self._console.print(f"  {prefix} {command}", highlight=False, markup=False, soft_wrap=True)


def rows_table(title: str, rows: list[Document]) -> Table:
    """Return rows with equal columns as a table for the terminal."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in rows[0] if rows else ():
        is_text = isinstance(rows[0][column], str)
        table.add_column(column.replace("_", " "), justify="left" if is_text else "right", no_wrap=is_text)
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
