"""``strandline cuts``: versions of all silver tables that belong together."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.commands.terminal import AsJson, opener, print_rows

cuts = typer.Typer(
    name="cuts",
    help="Consistent cuts: the table versions of silver that belong to one moment of the source.",
    no_args_is_help=True,
)


@cuts.command("list")
def list_all(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="Maximum cuts to list.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List cuts, newest first: position, table versions, and whether the cut is exact."""
    from strandline.jobs.operations.cut_listing import list_cuts

    print_rows(list_cuts(opener(context).for_control(), limit=limit), as_json=as_json)
