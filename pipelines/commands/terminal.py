"""What the verbs share: how a pipeline is opened from the command line, and how an answer is printed."""

from __future__ import annotations

import logging
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.plain_text import printable, printable_json
from pipelines.settings.configuration import Settings, load_settings, without_files

if TYPE_CHECKING:
    from pipelines.jobs.context import JobContext


class Terminal(Console):
    """Prints text as it is: no markup, no emoji codes, and characters that would command the terminal are written as `printable` writes
    them. Lines are given one by one: a line break inside a text is such a character, too."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})


out = Terminal(width=None if sys.stdout.isatty() else 140)  # a pipe has no width, and rich would fold tables at 80
NAME = "strandline"
_Row = TypeVar("_Row")
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


def program() -> str:
    """The command as it can be typed again where this process was started: ``strandline`` only where that is on the PATH."""
    started = sys.argv[0]
    if Path(started).name != NAME:  # python -m, a notebook, a test
        return NAME
    found = shutil.which(NAME)
    return NAME if found is not None and Path(found).resolve() == Path(started).resolve() else shlex.quote(started)


def settings_of(context: typer.Context) -> Settings:
    target, conf = context.obj
    return load_settings(target, conf)


def lake_settings(context: typer.Context) -> Settings:
    """The same, for what works on the configured lake: started in another folder it would quietly begin a lake there."""
    settings = settings_of(context)
    if (warning := without_files(*context.obj)) is not None:
        logging.getLogger("strandline.settings").warning("%s", warning)
    return settings


def open_pipeline(context: typer.Context) -> JobContext:
    """I/O: reads the configuration, starts Spark."""
    from pipelines.jobs.context import (
        open_context,  # Spark is only imported by verbs that need it: --help stays instant
    )

    return open_context(lake_settings(context))


def print_json(value: Any) -> None:
    """Lossless: what would command the terminal is an escape of JSON."""
    typer.echo(printable_json(value, indent=2))


def print_record(record: dict[str, Any], *, as_json: bool = False) -> None:
    """One answer: a line for each of its values."""
    if as_json:
        print_json(record)
    else:
        out.print(as_lines(record))


def print_rows(rows: Sequence[dict[str, Any]], *, as_json: bool = False) -> None:
    """A listing: a table with a row for each."""
    if as_json:
        print_json(list(rows))
    else:
        out.print(as_table(rows))


def at_most(limit: int, found: list[_Row]) -> list[_Row]:
    """The first *limit* rows. Where there are more, standard error says so, so that nobody takes them for all."""
    if len(found) > limit:
        typer.echo(f"only the first {limit:,} rows are shown; --limit shows more", err=True)
    return found[:limit]


def as_lines(record: dict[str, Any]) -> Text:
    """A line for each value."""
    return Text("\n").join(Text(printable(f"{key.replace('_', ' '):>16}  {value}")) for key, value in record.items())


def as_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Values are text, whatever brackets they hold."""
    table = Table()
    for column in rows[0] if rows else ():
        table.add_column(Text(printable(column)))
    for row in rows:
        table.add_row(*(Text(printable(str(value))) for value in row.values()))
    return table


def stop_on_signal() -> threading.Event:
    """An event that Ctrl-C or SIGTERM sets: what is in hand is finished, then the command ends."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
