"""Shared by the commands: open the pipeline, print the answer."""

from __future__ import annotations

import logging
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from strandline.interrupts import Interrupts
from strandline.plain_text import printable, printable_json

if TYPE_CHECKING:
    from strandline.jobs.lake_opener import LakeOpener
    from strandline.settings.configuration import Settings


class Terminal(Console):
    """A console that prints text literally: no markup, no emoji codes.

    Control characters are escaped by `printable`, line breaks inside a text too. So callers print line by line.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})


out = Terminal(width=None if sys.stdout.isatty() else 140)  # a pipe has no width, and rich would fold tables at 80
NAME = "strandline"
_LEAST_WIDTH = 9
"""Width of a column, with its border, below which a table cannot be read."""
_Row = TypeVar("_Row")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def at_terminal() -> bool:
    """Return True if a person started this process at a terminal and sees its log."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def program() -> str:
    """Return the command as a user can type it here: ``strandline`` if it is on the PATH, otherwise its path."""
    started = sys.argv[0]
    if Path(started).name != NAME:  # python -m, a notebook, a test
        return NAME
    path = shutil.which(NAME)
    return NAME if path is not None and Path(path).resolve() == Path(started).resolve() else shlex.quote(started)


def settings_of(context: typer.Context) -> Settings:
    from strandline.settings.configuration import load_settings  # imports pydantic: the help text does not wait for it

    target, conf, overrides = context.obj
    return load_settings(target, conf, overrides)


def lake_settings(context: typer.Context) -> Settings:
    """Return the settings. Warn if the default folder has no configuration: a wrong folder would get a new lake."""
    from strandline.settings.configuration import missing_files_note

    settings = settings_of(context)
    if (warning := missing_files_note(*context.obj[:2])) is not None:
        logging.getLogger("strandline.settings").warning("%s", warning)
    return settings


def opener(context: typer.Context, *, briefly: bool = True) -> LakeOpener:
    """Return the opener of the lake. I/O: reads the configuration.

    Args:
        briefly: False: the command may compute for minutes, so a JVM that is started compiles its code fully.
    """
    from strandline.jobs.lake_opener import LakeOpener

    return LakeOpener(lake_settings(context), briefly=briefly)


def print_json(value: Any) -> None:
    """Print JSON without loss. Control characters are JSON escapes."""
    typer.echo(printable_json(value, indent=2))


def print_record(record: dict[str, Any], *, as_json: bool = False) -> None:
    """Print one record, one line per value."""
    if as_json:
        print_json(record)
    else:
        out.print(as_lines(record))


def print_rows(rows: Sequence[dict[str, Any]], *, as_json: bool = False) -> None:
    """Print a table with one line per row. If the terminal is too narrow for it, print one line per value."""
    if as_json:
        print_json(list(rows))
    elif rows and len(rows[0]) * _LEAST_WIDTH > out.width:
        for number, row in enumerate(rows, start=1):
            out.print(Text(f"row {number}"))
            out.print(_values(row), soft_wrap=True)
    else:
        out.print(as_table(rows))


def at_most(limit: int, rows: list[_Row]) -> list[_Row]:
    """Return the first *limit* rows. If there are more, say so on standard error."""
    if len(rows) > limit:
        typer.echo(f"only the first {limit:,} rows are shown; --limit shows more", err=True)
    return rows[:limit]


def as_lines(record: dict[str, Any]) -> Text:
    """Return one line per value."""
    return Text("\n").join(
        Text(printable(f"{key.replace('_', ' '):>16}  {_cell(value)}")) for key, value in record.items()
    )


def _values(row: dict[str, Any]) -> Text:
    """Return one line per value, beside the name of its column."""
    names = [printable(name) for name in row]
    width = max(map(len, names), default=0) + 2
    values = (printable(_cell(value)) for value in row.values())
    return Text("\n").join(Text(f"{name:>{width}}  {value}") for name, value in zip(names, values, strict=True))


def as_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a table. Values are literal text, also with brackets."""
    table = Table()
    for column in rows[0] if rows else ():
        table.add_column(Text(printable(column)), overflow="fold")  # an id that is cut is no id
    for row in rows:
        table.add_row(*(Text(printable(_cell(value))) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    """Return a value for people: a dash for nothing, lists without brackets, and bytes by their number."""
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if value is None or (isinstance(value, tuple | list) and not value):
        return "–"
    if isinstance(value, tuple | list):
        return ", ".join(" ".join(map(str, item)) if isinstance(item, tuple | list) else str(item) for item in value)
    return str(value)


def stop_on_signal(
    what: str, stopping: Callable[[], None] = lambda: None, *, has_begun: Callable[[], bool] = lambda: True
) -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set. The command then finishes its work in progress and ends.

    On a platform that runs a command outside the main thread, Python can set no handler. A kill loses nothing.

    Args:
        what: Description of the work that is finished first.
        stopping: Called after a signal.
        has_begun: Returns False while there is no work to finish: then a signal ends the command at once.
    """
    stop = threading.Event()

    def end() -> None:
        stop.set()
        stopping()

    Interrupts(end, what, has_begun).install()
    return stop
