"""``strandline export``: files for other tools, made from the tables of the lake."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.commands.terminal import opener
from strandline.model.dbt_sources import DuckDbReader

export = typer.Typer(name="export", help="Files for other tools, made from the tables.", no_args_is_help=True)


@export.callback()
def _group() -> None:
    """Files for other tools, made from the tables."""  # with one command alone Typer would drop its name


@export.command("dbt-sources")
def dbt_sources(
    context: typer.Context,
    reader: Annotated[
        DuckDbReader,
        typer.Option(
            help="In a lake by path: how dbt-duckdb reads. `delta_scan`: DuckDB's extension. `plugin`: dbt-duckdb's "
            "plugin `delta`, which needs the package deltalake."
        ),
    ] = "delta_scan",
) -> None:
    """Print the sources of a dbt project as YAML: silver and gold tables, with columns, types and comments."""
    import yaml  # here, because every command imports this module

    from strandline.jobs.operations.dbt_sources import lake_sources

    sources = lake_sources(opener(context).for_control(), reader)
    typer.echo(yaml.safe_dump(sources, sort_keys=False, allow_unicode=True, width=120), nl=False)
