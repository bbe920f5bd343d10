"""``strandline wait``: wait until a layer holds what was written to MongoDB."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from strandline.commands.terminal import AsJson, opener, out, print_json


def wait(
    context: typer.Context,
    until: Annotated[
        str,
        typer.Option(help="now, an operation time of a MongoDB session such as 1764300000,3, or an ISO 8601 time."),
    ] = "now",
    layer: Annotated[Literal["bronze", "silver", "gold"], typer.Option(help="Layer to wait for.")] = "silver",
    timeout: Annotated[float, typer.Option(min=0, help="Maximum wait in seconds.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Wait until a layer holds every change of the source up to a moment. Exit 75 if it does not in time."""
    from strandline.jobs.wait import wait_for

    arrival = wait_for(opener(context).for_control(), until=until, layer=layer, timeout_seconds=timeout)
    if as_json:
        print_json(asdict(arrival))
        return
    cut = "" if arrival.cut is None else f", cut {arrival.cut}"
    seconds, increment = arrival.until
    out.print(f"{layer} holds everything up to {seconds},{increment}{cut} (after {arrival.seconds:.1f} s)")
    for table, version in arrival.versions.items():
        out.print(f"  {table} version {version}")
