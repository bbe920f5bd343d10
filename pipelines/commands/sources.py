"""``strandline stop | start | pause | resume``: what an operator asks of a source."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.commands.offsets import By, Why
from pipelines.commands.terminal import open_pipeline, out

Force = Annotated[bool, typer.Option("--force", help="Even though the source will soon forget the position.")]


def stop(context: typer.Context, by: By, why: Why = None, force: Force = False) -> None:
    """Stop the source: a running capture ends after its batch, none starts until `start`. Its offset can be altered then."""
    _order(context, "stopped", by, why, force)


def start(context: typer.Context, by: By, why: Why = None) -> None:
    """Let a stopped source be captured again."""
    _order(context, "running", by, why, force=False)


def pause(context: typer.Context, by: By, why: Why = None, force: Force = False) -> None:
    """Let a running capture wait, and keep its place, until `resume`."""
    _order(context, "paused", by, why, force)


def resume(context: typer.Context, by: By, why: Why = None) -> None:
    """Let a paused (or stopped) source go on."""
    _order(context, "running", by, why, force=False)


def _order(context: typer.Context, state: str, by: str, why: str | None, force: bool) -> None:
    from pipelines.jobs.sources import order

    now = order(open_pipeline(context), state, by=by, why=why, force=force)  # type: ignore[arg-type]  # why: a state is a Literal
    since = f" since {now.at:%Y-%m-%d %H:%M:%S} UTC, asked for by {now.by}" if now.at else ""
    out.print(f"{now.source} is {now.state}{since}", highlight=False, markup=False)
