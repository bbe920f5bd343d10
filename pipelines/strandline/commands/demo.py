"""``strandline demo``: the whole way on real data, with a proof at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from strandline.commands.terminal import out, program, settings_of


def demo(
    context: typer.Context,
    rows: Annotated[
        int | None, typer.Option(help="Approximate number of flights to load and replay. Default: all.")
    ] = None,
    lake: Annotated[
        Path, typer.Option(help="Folder of the demo's lake. The lake of an earlier demo is replaced.")
    ] = Path("lake/demo"),
    engine: Annotated[
        Literal["auto", "spark"],
        typer.Option(help="Engine that writes bronze, silver and gold. auto: delta-rs where it is quicker."),
    ] = "spark",
) -> None:
    """Load real flights into an embedded MongoDB, run the pipeline on live changes, and compare the result."""
    from strandline.jobs.demo import run_demo

    run_demo(settings_of(context), lake=lake, rows=rows, console=out, command=program(), engine=engine)
