"""What the verbs share: how a pipeline is opened from the command line, and how an answer is printed."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.settings import Settings, load_settings, without_files

if TYPE_CHECKING:
    from pipelines.jobs.context import JobContext

out = Console(width=None if sys.stdout.isatty() else 140)  # a pipe has no width, and rich would fold tables at 80
_Row = TypeVar("_Row")
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


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
    from pipelines.jobs.context import open_context  # Spark is only imported by verbs that need it: --help stays instant

    return open_context(lake_settings(context))


def print_json(value: Any) -> None:
    out.print_json(json.dumps(value, default=str))


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
    return Text("\n".join(f"{key.replace('_', ' '):>16}  {value}" for key, value in record.items()))


def as_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Values are text, whatever brackets they hold."""
    table = Table()
    for column in rows[0] if rows else ():
        table.add_column(Text(column))
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    return table


def stop_on_signal() -> threading.Event:
    """An event that Ctrl-C or SIGTERM sets: what is in hand is finished, then the command ends."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
