"""``strandline dead-letters``: documents and events that could not be processed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from strandline.commands.terminal import AsJson, opener, out, print_record, print_rows
from strandline.errors import ConfigurationError
from strandline.model.timestamps import TIME_EXAMPLE, parse_time

dead_letters = typer.Typer(
    name="dead-letters", help="Documents and events that could not be processed, and why.", no_args_is_help=True
)


@dead_letters.command("list")
def list_(
    context: typer.Context,
    status: Annotated[
        Literal["open", "replayed", "gone"] | None, typer.Option(help="List only dead letters with this status.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first, without their documents."""
    from strandline.jobs.operations.dead_letters import list_dead_letters

    print_rows(list_dead_letters(opener(context).for_control(), status=status), as_json=as_json)


@dead_letters.command("show")
def show(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(metavar="ID")],
    values: Annotated[bool, typer.Option("--values", help="Show the document too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter."""
    from strandline.jobs.operations.dead_letters import show_dead_letter

    print_record(show_dead_letter(opener(context).for_control(), identifier, values=values), as_json=as_json)


@dead_letters.command("replay")
def replay_(
    context: typer.Context,
    identifiers: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Default: all open dead letters.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read the documents again from the source and append them to bronze. Repeating this is safe."""
    from strandline.jobs.operations.dead_letter_replay import replay

    print_rows([asdict(letter) for letter in replay(opener(context).for_capture(), identifiers or ())], as_json=as_json)


@dead_letters.command("purge")
def purge_(
    context: typer.Context,
    before: Annotated[
        str | None,
        typer.Option(help="Delete only dead letters older than this ISO 8601 time. UTC if no zone is given."),
    ] = None,
    everything: Annotated[bool, typer.Option("--open", help="Delete open dead letters too.")] = False,
) -> None:
    """Delete dead letters that were replayed, or whose document is gone."""
    from strandline.jobs.operations.dead_letters import purge

    try:
        moment = None if before is None else parse_time(before)
    except ValueError:
        raise ConfigurationError(f"--before is no ISO 8601 time: {before!r}", next_step=TIME_EXAMPLE) from None
    out.print(f"{purge(opener(context).for_control(), before=moment, everything=everything):,} dead letters deleted")
