"""``strandline rebuild``: build silver again from bronze alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from strandline.commands.terminal import AsJson, opener, print_record


def rebuild(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="silver.NAME, or the collection as MongoDB has it.")],
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

    ctx = opener(context, briefly=False).for_silver()
    result = run_rebuild(ctx, table, keys=key or (), since=since, dry_run=dry_run)
    print_record(asdict(result), as_json=as_json)
