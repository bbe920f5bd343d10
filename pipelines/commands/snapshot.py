"""``strandline snapshot``: what was read beside the stream, and whether it is everything."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pipelines.commands.terminal import AsJson, open_pipeline, print_rows

snapshot = typer.Typer(help="Snapshots: what was read, and whether it is everything.", no_args_is_help=True)


@snapshot.command("list")
def list_all(context: typer.Context, as_json: AsJson = False) -> None:
    """Every snapshot, newest first: how many chunks were planned, and how many have landed."""
    from pipelines.jobs.snapshots import list_snapshots

    print_rows([asdict(state) for state in list_snapshots(open_pipeline(context))], as_json=as_json)


@snapshot.command("verify")
def verify(
    context: typer.Context,
    snapshot_id: Annotated[str | None, typer.Argument(help="Which one; default: the newest.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold a snapshot's certificate against bronze: its chunks tile every collection, and all their documents are there. Exit 4 if not."""
    from pipelines.jobs.snapshots import verify_snapshot

    found = verify_snapshot(open_pipeline(context), snapshot_id)
    print_rows([asdict(check) | {"holds": check.holds} for check in found], as_json=as_json)
    if not all(check.holds for check in found):
        raise typer.Exit(4)
