"""Translate the table names of gold SQL to names that Spark can read."""

from __future__ import annotations

from collections.abc import Callable

from strandline.gold.graph import Graph
from strandline.gold.statement import Statement
from strandline.model.tables import Lake, TableName

Source = Callable[[TableName], str]
"""SQL that replaces the name of a stored table: another name, or a query in brackets."""


def spark_sql(
    lake: Lake,
    graph: Graph,
    statement: Statement,
    source: Source,
    *,
    direct_source: Source | None = None,
    inline: bool = True,
) -> str:
    """Return the text of *statement* with every table name replaced. Pure.

    A table with time travel in the query keeps its plain name.

    Args:
        source: SQL of a stored table.
        direct_source: SQL of a table that *statement* names itself, not through a view. None: *source*.
        inline: True: expand gold views as subqueries. False: read gold views by name, like tables.
    """

    def target(table: TableName) -> str:
        view = graph.view(table) if inline else None
        return f"(\n{spark_sql(lake, graph, view.statement, source)}\n)" if view else (direct_source or source)(table)

    return statement.rewrite(target, versioned_target=lake.sql)
