"""``strandline schema``: the columns of silver tables and their changes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.commands.terminal import AsJson, opener, print_rows

if TYPE_CHECKING:
    from strandline.jobs.lake_context import LakeContext

schema = typer.Typer(name="schema", help="The columns of silver tables, and their changes.", no_args_is_help=True)
Table = Annotated[
    str | None, typer.Argument(metavar="[TABLE]", help="Table, such as silver.orders, or its collection. Default: all.")
]


@schema.command()
def show(context: typer.Context, table: Table = None, as_json: AsJson = False) -> None:
    """List the columns from documents and declarations, with their types."""
    from strandline.jobs.operations.status import silver_columns

    ctx = opener(context).for_control()
    chosen = _chosen(ctx, table)
    columns = [asdict(column) | {"table": str(column.table)} for column in silver_columns(ctx)]
    print_rows([column for column in columns if chosen in (None, column["table"])], as_json=as_json)


@schema.command()
def history(
    context: typer.Context,
    table: Table = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum changes to list.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List added and widened columns, newest first: type before and after, and the bronze version that caused it."""
    from strandline.jobs.operations.schema_changes import schema_history

    ctx = opener(context).for_control()
    print_rows(schema_history(ctx, _chosen(ctx, table), limit=limit), as_json=as_json)


def _chosen(ctx: LakeContext, table: str | None) -> str | None:
    from strandline.jobs.silver.named_tables import table_named

    return None if table is None else str(table_named(ctx, table))
