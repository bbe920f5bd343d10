"""``strandline quality``: expectations, quarantine, Data Docs."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.commands.telemetry import telemetry
from strandline.commands.terminal import AsJson, opener, out, print_rows, settings_of
from strandline.errors import ConfigurationError

quality = typer.Typer(name="quality", help="Data quality: expectations, quarantine, Data Docs.", no_args_is_help=True)

Names = Annotated[list[str] | None, typer.Argument(help="Only these suites or tables. Default: all.")]


@quality.command("run")
def run(context: typer.Context, names: Names = None) -> None:
    """Check the suites. Store results in control.quality and Data Docs, and quarantine rows if a suite says so."""
    from strandline.jobs.gold.quality import NO_SUITES, run_quality

    ctx = opener(context, briefly=False).with_spark()
    with telemetry(ctx.settings):
        report = run_quality(ctx, names or ())
    out.print(report.summary() if report.checks else NO_SUITES, soft_wrap=True, markup=False)


@quality.command("replay")
def replay(context: typer.Context, names: Names = None) -> None:
    """Check quarantined rows again, and release the rows that pass."""
    from strandline.jobs.gold.quality import replay_quarantine
    from strandline.jobs.operations.status import quarantined_rows

    ctx = opener(context, briefly=False).with_spark()
    before = sum(quarantined_rows(ctx).values())
    with telemetry(ctx.settings):
        replay_quarantine(ctx, names or ())
    held = sum(quarantined_rows(ctx).values())
    out.print(f"{before - held:,} rows released, {held:,} still in quarantine")


@quality.command("accept")
def accept(context: typer.Context, names: Annotated[list[str], typer.Argument(help="Suites or tables.")]) -> None:
    """Check again, and make today's volume and columns the new baseline."""
    from strandline.jobs.gold.quality import run_quality

    ctx = opener(context, briefly=False).with_spark()
    with telemetry(ctx.settings):
        report = run_quality(ctx, names, accept=True)
    out.print(report.summary(), soft_wrap=True, markup=False)


@quality.command("held")
def held(context: typer.Context, as_json: AsJson = False) -> None:
    """Count quarantined rows by table. The rows are in silver.<table>_quarantine."""
    from strandline.jobs.operations.status import quarantined_rows

    counts = quarantined_rows(opener(context, briefly=False).with_spark())
    print_rows([{"table": table, "rows": count} for table, count in counts.items()], as_json=as_json)


@quality.command("docs")
def docs(
    context: typer.Context,
    launch: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Print the path of the Data Docs."""
    from strandline.jobs.operations.status import docs_page

    page = docs_page(settings_of(context))
    if page is None:
        raise ConfigurationError("no page has been written yet", next_step="strandline quality run")
    out.print(str(page), soft_wrap=True, highlight=False)
    if launch:
        typer.launch(page.as_uri())
