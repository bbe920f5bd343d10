"""``strandline offsets``: the position that bronze remembers, seen and set."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.terminal import AsJson, open_pipeline, out, print_json, print_record, print_rows

if TYPE_CHECKING:
    from pipelines.jobs.offsets.job import Move

offsets = typer.Typer(help="The position that bronze remembers.", no_args_is_help=True)

Why = Annotated[str | None, typer.Option(help="The reason; it is kept beside the change.")]
By = Annotated[str, typer.Option(help="Who asks for it.", default_factory=getpass.getuser, show_default="the user")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be captured again or skipped.")]


@offsets.command("show")
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Token, batch and times of the committed position, and how long the source will remember it."""
    from pipelines.jobs.operations.status import show_offset

    print_record(asdict(show_offset(open_pipeline(context))), as_json=as_json)


@offsets.command("history")
def history(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Every position that was ever committed: by batch, time, lineage and what moved it."""
    from pipelines.jobs.offsets.job import offset_history

    print_rows([asdict(ended) for ended in offset_history(open_pipeline(context), limit)], as_json=as_json)


@offsets.command("alter")
def alter(
    context: typer.Context,
    to: Annotated[
        str,
        typer.Option(
            help="A token, an ISO 8601 time (UTC where it names no zone), a version of the bronze table, now, or oldest."
        ),
    ],
    by: By,
    why: Why = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Move the position of a stopped source. Going back captures again, which harms nothing; going forward records a gap."""
    from pipelines.jobs.offsets.job import alter_offset

    move = alter_offset(open_pipeline(context), to, by=by, why=why, dry_run=dry_run)
    _print_move(move, as_json)


@offsets.command("reset")
def reset(context: typer.Context, by: By, why: Why = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Let a stopped source start anew, in a new lineage. What was captured stays; the old positions stay in the history."""
    from pipelines.jobs.offsets.job import reset_offset

    move = reset_offset(open_pipeline(context), by=by, why=why, dry_run=dry_run)
    _print_move(move, as_json)


def _print_move(move: Move, as_json: bool) -> None:
    if as_json:
        print_json(asdict(move))
    else:
        out.print(move.summary(), highlight=False, markup=False)
