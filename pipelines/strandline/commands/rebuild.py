"""``strandline rebuild``: build silver again from bronze alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from strandline.commands.terminal import AsJson, open_pipeline, print_record


def rebuild(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="silver.NAME")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="Rebuild only the row with this _key. Repeatable. Default: the whole table."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Rebuild only rows that changed in the source since this ISO 8601 time. UTC if no zone is given."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compare only. The source need not be stopped.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a silver table of a stopped source from bronze, with new column types. Report differences, then swap."""
    from strandline.jobs.silver.rebuild import run_rebuild

    print_record(
        asdict(run_rebuild(open_pipeline(context), table, keys=key or (), since=since, dry_run=dry_run)),
        as_json=as_json,
    )
