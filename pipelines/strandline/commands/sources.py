"""``strandline stop | start | pause | resume | delete``: the desired state of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strandline.commands.offsets import By, Why
from strandline.commands.terminal import opener, out

if TYPE_CHECKING:
    from strandline.control.sources import SourceState

Force = Annotated[bool, typer.Option("--force", help="Proceed even if the oplog will soon lose the position.")]
Yes = Annotated[bool, typer.Option("--yes", help="Drop the tables. Without this option they are only listed.")]


def stop(context: typer.Context, by: By, why: Why = None, force: Force = False) -> None:
    """Stop the source. A running capture ends after its batch. None starts until `start`. Offsets can be altered."""
    _order(context, "stopped", by, why, force)


def start(context: typer.Context, by: By, why: Why = None) -> None:
    """Allow capture of a stopped source. This starts no process."""
    _order(context, "running", by, why, force=False, then="start its process (strandline run, or its service or job)")


def pause(context: typer.Context, by: By, why: Why = None, force: Force = False) -> None:
    """Pause the source. A running capture waits and keeps its position until `resume`."""
    _order(context, "paused", by, why, force)


def resume(context: typer.Context, by: By, why: Why = None) -> None:
    """Resume a paused or stopped source."""
    _order(context, "running", by, why, force=False, then="a waiting process continues; if there is none, start it")


def delete(context: typer.Context, by: By, why: Why = None, yes: Yes = False) -> None:
    """Drop the bronze and silver tables of a stopped source. Gold, control rows and MongoDB stay."""
    from strandline.jobs.maintenance.delete_source import delete_source

    for table in delete_source(opener(context).with_spark(), by=by, why=why, dry_run=not yes):
        out.print(f"{'dropped' if yes else 'would be dropped'}: {table}", highlight=False, markup=False)
    if not yes:
        out.print("nothing was dropped → add --yes")


def _order(context: typer.Context, state: str, by: str, why: str | None, force: bool, then: str = "") -> None:
    from strandline.jobs.offsets.life_cycle import set_desired_state

    now = set_desired_state(opener(context).for_control(), state, by=by, why=why, force=force)  # type: ignore[arg-type]  # why: a state is a Literal
    out.print(state_line(now, then), highlight=False, markup=False)


def state_line(now: SourceState, then: str) -> str:
    """Return the desired state in words. A process acts on the state later."""
    since = f" since {now.at:%Y-%m-%d %H:%M:%S} UTC, set by {now.by}" if now.at else ""
    state = "may run" if now.state == "running" else f"is {now.state}"
    return f"{now.source} {state}{since}{f' → {then}' if then else ''}"
