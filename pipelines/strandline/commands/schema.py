"""``strandline schema``: the columns of silver tables and their changes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from strandline.commands.terminal import AsJson, opener, print_rows

schema = typer.Typer(name="schema", help="The columns of silver tables, and their changes.", no_args_is_help=True)
Table = Annotated[
    str | None, typer.Argument(metavar="[TABLE]", help="Table name, such as silver.orders. Default: all.")
]


@schema.command()
def show(context: typer.Context, table: Table = None, as_json: AsJson = False) -> None:
    """List the columns from documents and declarations, with their types."""
    from strandline.jobs.operations.status import silver_columns

    ctx = opener(context).for_control()
    columns = [asdict(column) | {"table": str(column.table)} for column in silver_columns(ctx)]
    print_rows([column for column in columns if table in (None, column["table"])], as_json=as_json)


@schema.command()
def history(
    context: typer.Context,
    table: Table = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum changes to list.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List added and widened columns, newest first: type before and after, and the bronze version that caused it."""
    from strandline.jobs.operations.schema_changes import schema_history

    print_rows(schema_history(opener(context).for_control(), table, limit=limit), as_json=as_json)
