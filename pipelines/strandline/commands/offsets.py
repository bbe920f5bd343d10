"""``strandline offsets``: show and change the committed position of a source."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.commands.terminal import AsJson, opener, out, print_json, print_record, print_rows

if TYPE_CHECKING:
    from strandline.jobs.offsets.move_offset import OffsetMove

offsets = typer.Typer(name="offsets", help="The committed position of the source.", no_args_is_help=True)

Why = Annotated[str | None, typer.Option(help="Reason for the change. It is stored with the change.")]
By = Annotated[
    str,
    typer.Option(
        help="Name of the person or job that makes the change.",
        default_factory=getpass.getuser,
        show_default="the user",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be captured again or skipped. Change nothing.")
]


def for_people(offset: dict[str, Any]) -> dict[str, Any]:
    """Return a position for the terminal: the state that an operator wants, and the process, are two lines."""
    facts = {"source": offset["source"], "wanted_state": offset.get("state")}
    if "process" in offset:
        process = offset["process"]
        facts["process"] = "no batch of a capture yet" if process is None else process["summary"]
    return facts | {name: value for name, value in offset.items() if name not in ("source", "state", "process")}


@offsets.command("show")
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the committed position: token, batch, times, and how long the oplog still holds it."""
    from strandline.jobs.offsets.show_offset import show_offset

    offset = asdict(show_offset(opener(context).for_control()))
    print_record(offset if as_json else for_people(offset), as_json=as_json)


@offsets.command("history")
def history(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="Maximum positions to list.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List committed positions, newest first: batch, time, epoch, and what moved the position."""
    from strandline.jobs.offsets.show_offset import offset_history

    print_rows([asdict(ended) for ended in offset_history(opener(context).for_control(), limit)], as_json=as_json)


@offsets.command("alter")
def alter(
    context: typer.Context,
    to: Annotated[
        str,
        typer.Option(help="Resume token, ISO 8601 time (UTC by default), bronze version, `now`, or `oldest`."),
    ],
    by: By,
    why: Why = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Move the position of a stopped source. Moving back repeats events safely. Moving forward records a gap."""
    from strandline.jobs.offsets.move_offset import alter_offset

    move = alter_offset(opener(context).for_capture(), to, by=by, why=why, dry_run=dry_run)
    _print_move(move, as_json)


@offsets.command("reset")
def reset(context: typer.Context, by: By, why: Why = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Forget the position of a stopped source. The next capture starts at now, in a new epoch. All rows stay."""
    from strandline.jobs.offsets.move_offset import reset_offset

    move = reset_offset(opener(context).for_capture(), by=by, why=why, dry_run=dry_run)
    _print_move(move, as_json)


def _print_move(move: OffsetMove, as_json: bool) -> None:
    if as_json:
        print_json(asdict(move))
    else:
        out.print(move.summary(), highlight=False, markup=False)
