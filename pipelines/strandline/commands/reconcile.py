"""``strandline reconcile``: compare silver with its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.commands.terminal import AsJson, opener, out, print_json, print_rows, stop_on_signal

if TYPE_CHECKING:
    from strandline.jobs.lake_opener import LakeOpener
    from strandline.jobs.reconcile.run_reconcile import Reconciliation

Continuous = Annotated[
    bool,
    typer.Option("--continuous", help="Compare range by range until Ctrl-C, columns too, at the pace of proof.budget."),
]
_SHOWN, _SHOWN_AS_JSON = 20, 1000


def reconcile(
    context: typer.Context,
    collection: Annotated[
        list[str] | None, typer.Option(help="Compare only this collection, as db.collection. Repeatable. Default: all.")
    ] = None,
    typed: Annotated[
        bool,
        typer.Option("--typed", help="Compare every column and _rescued with the row's _document, also in histories."),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Read differing documents into bronze again. The next silver run merges them."),
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Maximum wait, in seconds, for a running capture and silver to catch up.")
    ] = 30.0,
    continuous: Continuous = False,
    as_json: AsJson = False,
) -> None:
    """Compare silver with the source. List missing, extra and different documents. Exit 4 if there are any."""
    from strandline.jobs.reconcile.run_reconcile import differing_keys, run_reconcile

    lake = opener(context, briefly=False)
    if continuous:
        _prove(lake, collection or (), repairs=repair)
        return
    ctx = lake.for_silver()
    result = run_reconcile(ctx, collections=collection or (), typed=typed, repairs=repair, wait_seconds=wait)
    rows = [asdict(compared) for compared in result.collections]
    differs = any(compared.differences for compared in result.collections)
    keys = differing_keys(ctx, result.run_id, _SHOWN_AS_JSON if as_json else _SHOWN) if differs else []
    if as_json:
        print_json({"run_id": result.run_id, "collections": rows, "keys": keys})
    else:
        print_rows(rows)
        if keys:
            print_rows(keys)
        for line in _advice(result, repairs=repair):
            out.print(line, highlight=False)
    if not result.holds:
        raise typer.Exit(4)


def _prove(lake: LakeOpener, collections: Sequence[str], *, repairs: bool) -> None:
    """Compare until Ctrl-C. Print one line for each step."""
    from strandline.jobs.reconcile.continuous import ProofStep, prove, required_budget

    required_budget(lake.settings.proof.budget)  # before the lake is opened
    stop = stop_on_signal("the range in progress is read first")

    def report(step: ProofStep) -> None:
        repaired = f", repaired: {step.repaired:,}" if step.repaired else ""
        out.print(
            f"ranges: {step.ranges:,}, documents: {step.documents:,}, differences: {step.differences:,}{repaired}"
        )

    prove(lake.for_silver(), stop, collections=collections, repairs=repairs, report=report)


def _advice(result: Reconciliation, *, repairs: bool) -> Iterator[str]:
    """Yield what to do about each kind of difference."""
    if any(compared.differences for compared in result.collections):
        yield f"all of them: select * from control.reconcile where run_id = '{result.run_id}' and confirmed"
        if repairs:
            yield "repaired documents are in bronze → strandline silver"
    for compared in result.collections:
        if compared.late:
            yield (
                f"{compared.late} rows of {compared.collection} have rescued values that newer columns can hold → "
                "strandline rebuild"
            )
        if compared.history:
            yield f"drop the history table of {compared.collection}: strandline silver fills it again from bronze"
