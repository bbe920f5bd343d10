"""``strandline stop | start | pause | resume | delete``: what an operator asks of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.offsets import By, Why
from pipelines.commands.terminal import open_pipeline, out

if TYPE_CHECKING:
    from pipelines.control.sources import SourceState

Force = Annotated[bool, typer.Option("--force", help="Even though the source will soon forget the position.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without it the tables are only listed.")]


def stop(context: typer.Context, by: By, why: Why = None, force: Force = False) -> None:
    """Stop the source: a running capture ends after its batch, none starts until `start`. Its offset can be altered then."""
    _order(context, "stopped", by, why, force)


def start(context: typer.Context, by: By, why: Why = None) -> None:
    """Let a stopped source be captured again, by a process that somebody starts."""
    _order(context, "running", by, why, force=False, then="start its process (strandline run, or its service or job)")


def pause(context: typer.Context, by: By, why: Why = None, force: Force = False) -> None:
    """Let a running capture wait, and keep its place, until `resume`."""
    _order(context, "paused", by, why, force)


def resume(context: typer.Context, by: By, why: Why = None) -> None:
    """Let a paused (or stopped) source go on."""
    _order(context, "running", by, why, force=False, then="a process that waits goes on; if there is none, start it")


def delete(context: typer.Context, by: By, why: Why = None, yes: Yes = False) -> None:
    """Drop the bronze and silver tables of a stopped source. Gold and what control says of the source stay; so does MongoDB."""
    from pipelines.jobs.maintenance.delete_source import delete_source

    for table in delete_source(open_pipeline(context), by=by, why=why, dry_run=not yes):
        out.print(f"{'dropped' if yes else 'would be dropped'}: {table}", highlight=False, markup=False)
    if not yes:
        out.print("nothing was dropped → add --yes")


def _order(context: typer.Context, state: str, by: str, why: str | None, force: bool, then: str = "") -> None:
    from pipelines.jobs.offsets.life_cycle import set_desired_state

    now = set_desired_state(open_pipeline(context), state, by=by, why=why, force=force)  # type: ignore[arg-type]  # why: a state is a Literal
    out.print(told(now, then), highlight=False, markup=False)


def told(now: SourceState, then: str) -> str:
    """What was ordered; what a process does about it is another matter."""
    since = f" since {now.at:%Y-%m-%d %H:%M:%S} UTC, asked for by {now.by}" if now.at else ""
    state = "may run" if now.state == "running" else f"is {now.state}"
    return f"{now.source} {state}{since}{f' → {then}' if then else ''}"
