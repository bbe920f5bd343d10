"""``strandline reconcile``: compare silver with its source."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from strandline.commands.terminal import AsJson, opener, out, print_json, print_rows

_SHOWN, _SHOWN_AS_JSON = 20, 1000


def reconcile(
    context: typer.Context,
    collection: Annotated[
        list[str] | None, typer.Option(help="Compare only this collection, as db.collection. Repeatable. Default: all.")
    ] = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Read differing documents into bronze again. The next silver run merges them."),
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Maximum wait, in seconds, for a running capture and silver to catch up.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Compare silver with the source. List missing, extra and different documents. Exit 4 if there are any."""
    from strandline.jobs.reconcile.job import differing_keys, run_reconcile

    ctx = opener(context, briefly=False).with_spark()
    result = run_reconcile(ctx, collections=collection or (), repairs=repair, wait_seconds=wait)
    rows = [asdict(compared) for compared in result.collections]
    differs = any(compared.differences for compared in result.collections)
    keys = differing_keys(ctx, result.run_id, _SHOWN_AS_JSON if as_json else _SHOWN) if differs else []
    if as_json:
        print_json({"run_id": result.run_id, "collections": rows, "keys": keys})
    else:
        print_rows(rows)
        if keys:
            print_rows(keys)
            out.print(
                f"all of them: select * from control.reconcile where run_id = '{result.run_id}' and confirmed",
                highlight=False,
            )
        if repair and differs:
            out.print("repaired documents are in bronze → strandline silver")
    if not result.holds:
        raise typer.Exit(4)
