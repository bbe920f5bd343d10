"""``strandline cuts``: versions of all silver tables that belong together."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.commands.terminal import AsJson, open_pipeline, print_rows

cuts = typer.Typer(help="Consistent cuts: versions of all silver tables that belong together.", no_args_is_help=True)


@cuts.command("list")
def list_all(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """The newest first: a position, the version of every table there, and whether it is an exact moment of the source."""
    from pipelines.jobs.silver.cuts import list_cuts

    print_rows(list_cuts(open_pipeline(context), limit=limit), as_json=as_json)
