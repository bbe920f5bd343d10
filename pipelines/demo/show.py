"""What the demo shows while it works: a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from pipelines.demo.dataset import Document

_STEPS = 11


class Stages:
    """The demo's steps, each with what it took."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._done = 0

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """Show *title* while the body runs; yields a function that notes what just happened."""
        started = time.monotonic()
        columns = (SpinnerColumn(), BarColumn(bar_width=20), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(title, total=_STEPS, completed=self._done)
            yield lambda text: progress.update(task, description=f"{title}: {text}")
        self._done += 1
        self._console.print(f"[green]✓[/] {title} [dim]{time.monotonic() - started:.1f} s[/]")

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", highlight=False)

    def show(self, table: Table) -> None:
        self._console.print(table)

    def close(self, lake: Path) -> None:
        """The end, and what to try next."""
        prefix = f"STRANDLINE_SOURCE__NAME=airline STRANDLINE_LAKE__ROOT={lake} strandline"
        self._console.print(f"Done in {time.monotonic() - self._started:.0f} s. The lake is in {lake}; look at it:", highlight=False)
        for command in (
            "status",
            "offsets show",
            'sql "select status, count(*) as flights from silver.flights where not _deleted group by all"',
        ):
            self._console.print(f"  {prefix} {command}", highlight=False, soft_wrap=True)


def gold_table(name: str, rows: list[Document]) -> Table:
    """One gold result for the terminal."""
    table = Table(title=f"gold.{name}")
    for column in rows[0] if rows else ():
        table.add_column(column.replace("_", " "), justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
