"""``strandline offsets``: the position that bronze remembers."""

from __future__ import annotations

from dataclasses import asdict

import typer

from pipelines.commands.terminal import AsJson, open_pipeline, print_record

offsets = typer.Typer(help="The position that bronze remembers.", no_args_is_help=True)


@offsets.command("show")
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Token, batch and times of the committed position."""
    from pipelines.jobs.status import show_offset

    print_record(asdict(show_offset(open_pipeline(context))), as_json=as_json)
