"""Gold's SQL in Spark's names."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.gold.graph import Graph
from pipelines.gold.statement import Statement
from pipelines.model.tables import Lake, TableName

Source = Callable[[TableName], str]
"""What stands for a table that holds rows: a name, or a query in brackets."""


def spark_sql(
    lake: Lake, graph: Graph, statement: Statement, source: Source, *, own: Source | None = None, inline: bool = True
) -> str:
    """*statement* with every table replaced. Pure. A table that it reads at a version of its own choosing stands under its plain name.

    Args:
        source: For tables.
        own: The same for the tables that *statement* names itself, and not through a view. Default: *source*.
        inline: Views of gold stand in brackets in their place; else they are tables like others.
    """

    def target(table: TableName) -> str:
        view = graph.view(table) if inline else None
        return f"(\n{spark_sql(lake, graph, view.statement, source)}\n)" if view else (own or source)(table)

    return statement.rewrite(target, travelling=lake.sql)
