"""``strandline sql``: queries by layer names."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.commands.terminal import AsJson, at_most, opener, print_rows


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="Query, such as: select * from silver.flights")],
    limit: Annotated[int, typer.Option(min=1, help="Maximum rows to print.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Query tables of bronze, silver, gold and control by their layer names."""
    from strandline.jobs.operations.sql import run_sql

    rows = run_sql(opener(context, briefly=False).with_spark(), query).limit(limit + 1).collect()
    print_rows([row.asDict(recursive=True) for row in at_most(limit, rows)], as_json=as_json)
