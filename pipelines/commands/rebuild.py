"""``strandline rebuild``: silver anew, from bronze alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pipelines.commands.terminal import AsJson, open_pipeline, print_record


def rebuild(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="silver.NAME")],
    key: Annotated[
        list[str] | None, typer.Option(help="Only this row, by its _key; may be repeated. Default: the whole table.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only rows that changed in the source since then, like 2026-01-31T12:00:00+00:00. UTC where it names no zone."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compare; the source need not be stopped.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build a silver table of a stopped source anew from bronze, its columns' types included; say what differs, and swap it."""
    from pipelines.jobs.silver.rebuild import run_rebuild

    print_record(
        asdict(run_rebuild(open_pipeline(context), table, keys=key or (), since=since, dry_run=dry_run)),
        as_json=as_json,
    )
