"""``strandline snapshot``: read collections while the stream runs, and verify the result."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from strandline.commands.offsets import By
from strandline.commands.terminal import AsJson, opener, out, print_record, print_rows

snapshot = typer.Typer(
    name="snapshot",
    help="Snapshots: start, pause and stop while capture runs; list and verify.",
    no_args_is_help=True,
)

Collections = Annotated[
    list[str] | None,
    typer.Option(
        "--collection",
        metavar="REGEX",
        help="Drop only the unread chunks of collections that match, as db.collection. Repeatable.",
    ),
]


@snapshot.command("start")
def start(
    context: typer.Context,
    by: By,
    collection: Annotated[
        list[str],
        typer.Option(
            metavar="REGEX",
            help="Collections to read: regular expression for the whole of database.collection. Repeatable.",
        ),
    ],
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="DB.C={…}", help="Query for one collection: read only matching documents. Repeatable."
        ),
    ] = None,
    kind: Annotated[
        Literal["incremental", "blocking"],
        typer.Option("--type", help="incremental: the stream continues. blocking: the stream waits for the snapshot."),
    ] = "incremental",
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Read every document of the collections, now: a running snapshot drops their unread chunks. "
            "Not with --filter.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read collections again, in a running capture or at the next start."""
    from strandline.jobs.snapshot.send_signal import conditions_of

    conditions = conditions_of(filters or ())
    data = {"type": kind, "data-collections": collection, "additional-conditions": conditions, "replace": replace}
    _send(context, "execute-snapshot", data, by, as_json)


@snapshot.command("pause")
def pause(context: typer.Context, by: By, as_json: AsJson = False) -> None:
    """Pause the running snapshot, also across restarts. The stream continues."""
    _send(context, "pause-snapshot", {}, by, as_json)


@snapshot.command("resume")
def resume(context: typer.Context, by: By, as_json: AsJson = False) -> None:
    """Continue a paused snapshot."""
    _send(context, "resume-snapshot", {}, by, as_json)


@snapshot.command("stop")
def stop(context: typer.Context, by: By, collection: Collections = None, as_json: AsJson = False) -> None:
    """Stop the running snapshot, or drop the unread chunks of some collections. Committed chunks stay."""
    _send(context, "stop-snapshot", {"type": "incremental", "data-collections": collection or []}, by, as_json)


@snapshot.command("list")
def list_all(context: typer.Context, as_json: AsJson = False) -> None:
    """List snapshots, newest first: planned and committed chunks."""
    from strandline.jobs.snapshot.report import list_snapshots

    print_rows([asdict(state) for state in list_snapshots(opener(context).for_control())], as_json=as_json)


@snapshot.command("verify")
def verify(
    context: typer.Context,
    snapshot_id: Annotated[str | None, typer.Argument(help="Snapshot id. Default: the newest.")] = None,
    as_json: AsJson = False,
) -> None:
    """Verify a snapshot: its chunks cover every collection, and bronze has all their documents. Exit 4 if not."""
    from strandline.jobs.snapshot.report import verify_snapshot

    verification = verify_snapshot(opener(context).for_control(), snapshot_id)
    print_rows([asdict(check) | {"holds": check.holds} for check in verification], as_json=as_json)
    if not all(check.holds for check in verification):
        raise typer.Exit(4)


def _send(context: typer.Context, kind: str, data: dict[str, Any], by: str, as_json: bool) -> None:
    from strandline.jobs.snapshot.send_signal import send_signal

    ctx = opener(context).for_control()
    signal = send_signal(ctx, kind, data, by=by)
    if as_json:
        print_record(asdict(signal), as_json=True)
        return
    seconds = ctx.settings.capture.signal_poll_interval_ms / 1000
    source = ctx.settings.source.name
    out.print(
        f"signal {signal.id} is sent: a running capture of {source} processes it within {seconds:g} s,"
        " otherwise the next capture at its start"
    )
