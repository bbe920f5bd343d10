"""``strandline snapshot``: what is read beside the stream, and whether it is everything."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from pipelines.commands.offsets import By
from pipelines.commands.terminal import AsJson, open_pipeline, out, print_record, print_rows

snapshot = typer.Typer(
    help="Snapshots: asked for, paused and stopped while capture runs; listed and verified.", no_args_is_help=True
)

Collections = Annotated[
    list[str] | None,
    typer.Option("--collection", metavar="REGEX", help="Only what is left of these, db.collection; may be repeated."),
]


@snapshot.command("start")
def start(
    context: typer.Context,
    by: By,
    collection: Annotated[
        list[str], typer.Option(metavar="REGEX", help="For database.collection, anchored; may be repeated.")
    ],
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="DB.C={…}", help="Only documents that match, of that collection; repeatable."),
    ] = None,
    kind: Annotated[
        Literal["incremental", "blocking"],
        typer.Option("--type", help="Whether the stream goes on meanwhile, or waits."),
    ] = "incremental",
    as_json: AsJson = False,
) -> None:
    """Read collections again, beside the stream of a running capture or at the next start."""
    from pipelines.jobs.snapshot.send_signal import conditions_of

    data = {"type": kind, "data-collections": collection, "additional-conditions": conditions_of(filters or ())}
    _send(context, "execute-snapshot", data, by, as_json)


@snapshot.command("pause")
def pause(context: typer.Context, by: By, as_json: AsJson = False) -> None:
    """Let the snapshot that runs wait, also through restarts; the stream goes on."""
    _send(context, "pause-snapshot", {}, by, as_json)


@snapshot.command("resume")
def resume(context: typer.Context, by: By, as_json: AsJson = False) -> None:
    """Let a paused snapshot go on."""
    _send(context, "resume-snapshot", {}, by, as_json)


@snapshot.command("stop")
def stop(context: typer.Context, by: By, collection: Collections = None, as_json: AsJson = False) -> None:
    """End the snapshot that runs, or leave out what it has not read yet of some collections. What has landed stays."""
    _send(context, "stop-snapshot", {"type": "incremental", "data-collections": collection or []}, by, as_json)


@snapshot.command("list")
def list_all(context: typer.Context, as_json: AsJson = False) -> None:
    """Every snapshot, newest first: how many chunks were planned, and how many have landed."""
    from pipelines.jobs.snapshot.report import list_snapshots

    print_rows([asdict(state) for state in list_snapshots(open_pipeline(context))], as_json=as_json)


@snapshot.command("verify")
def verify(
    context: typer.Context,
    snapshot_id: Annotated[str | None, typer.Argument(help="Which one; default: the newest.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold a snapshot's certificate against bronze: its chunks tile every collection, and all their documents are there. Exit 4 if not."""
    from pipelines.jobs.snapshot.report import verify_snapshot

    found = verify_snapshot(open_pipeline(context), snapshot_id)
    print_rows([asdict(check) | {"holds": check.holds} for check in found], as_json=as_json)
    if not all(check.holds for check in found):
        raise typer.Exit(4)


def _send(context: typer.Context, kind: str, data: dict[str, Any], by: str, as_json: bool) -> None:
    from pipelines.jobs.snapshot.send_signal import send_signal

    ctx = open_pipeline(context)
    signal = send_signal(ctx, kind, data, by=by)
    if as_json:
        print_record(asdict(signal), as_json=True)
        return
    seconds = ctx.settings.capture.signal_poll_interval_ms / 1000
    source = ctx.settings.source.name
    out.print(
        f"signal {signal.id} is sent: a running capture of {source} acts upon it in {seconds:g} s, else the next one at its start"
    )
