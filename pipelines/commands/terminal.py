"""What the verbs share: how a pipeline is opened from the command line, and how an answer is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.settings import Settings, load_settings

if TYPE_CHECKING:
    from pipelines.jobs.context import JobContext

out = Console(width=None if sys.stdout.isatty() else 140)  # a pipe has no width, and rich would fold tables at 80
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


def settings_of(context: typer.Context) -> Settings:
    target, conf = context.obj
    return load_settings(target, conf)


def open_pipeline(context: typer.Context) -> JobContext:
    """I/O: reads the configuration, starts Spark."""
    from pipelines.jobs.context import open_context  # Spark is only imported by verbs that need it: --help stays instant

    return open_context(settings_of(context))


def print_json(value: Any) -> None:
    out.print_json(json.dumps(value, default=str))


def print_record(record: dict[str, Any], *, as_json: bool = False) -> None:
    """One answer: a line for each of its values."""
    if as_json:
        print_json(record)
        return
    for key, value in record.items():
        out.print(f"{key.replace('_', ' '):>16}  {value}", highlight=False, markup=False)


def print_rows(rows: Sequence[dict[str, Any]], *, as_json: bool = False) -> None:
    """A listing: a table with a row for each. Values are text, whatever brackets they hold."""
    if as_json:
        print_json(list(rows))
        return
    table = Table()
    for column in rows[0] if rows else ():
        table.add_column(Text(column))
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    out.print(table)
