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
    """Query tables of bronze, silver, gold and control by their layer names. Spark starts only if a query needs it.

    A silver table may be named as its collection is in MongoDB: silver.orderLines, silver.`order-lines.v2`.
    """
    from strandline.jobs.operations.sql_without_spark import rows_without_spark

    lake = opener(context, briefly=False)
    rows = rows_without_spark(lake.settings, query, limit + 1)
    if rows is None:
        from strandline.jobs.operations.sql import rows_of, run_sql  # imports Spark

        rows = rows_of(run_sql(lake.with_spark(), query), limit + 1)
    print_rows(at_most(limit, rows), as_json=as_json)
