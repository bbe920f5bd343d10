"""``strandline quality``: expectations, results, Data Docs."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.commands.terminal import open_pipeline, out

quality = typer.Typer(help="Data quality: expectations, results, Data Docs.", no_args_is_help=True)


@quality.command("run")
def run(context: typer.Context, names: Annotated[list[str] | None, typer.Argument(help="Only these tables.")] = None) -> None:
    """Check the expectations of conf/quality; results go to control.quality and to Data Docs."""
    from pipelines.jobs.quality import run_quality

    report = run_quality(open_pipeline(context), names or (), conf=context.obj[1])
    out.print(report.summary())
