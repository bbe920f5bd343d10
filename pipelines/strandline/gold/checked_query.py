"""Read a query that names tables by layer, and find its tables. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from strandline.errors import ConfigurationError
from strandline.gold.graph import Graph
from strandline.gold.statement import Reference, Statement, parse_statement, suggestion
from strandline.io.tables.table_store import TableStore
from strandline.model.tables import TableName

NamesOf = Callable[[str], Sequence[TableName]]
"""Silver tables that a collection of this name may have."""


def no_names(_collection: str) -> Sequence[TableName]:
    """Return nothing: a query names its tables themselves."""
    return ()


def checked_query(
    tables: TableStore,
    graph: Graph,
    sql: str,
    virtual: Collection[TableName] = (),
    names_of: NamesOf = no_names,
) -> Statement:
    """Return the statement of one query. Each of its references is a table that exists, or a view of gold.

    I/O: looks up the tables.

    Args:
        virtual: Names that need no table.
        names_of: Candidates for a silver table that is named as its collection is in MongoDB.

    Raises:
        ConfigurationError: Not exactly one query, or a missing table (with the nearest name).
    """
    statement, problems = parse_statement(sql)
    if problems or statement is None:
        text = "; ".join(f"line {problem.line}: {problem.text}" for problem in problems)
        raise ConfigurationError(text, next_step="correct the query")
    statement = statement.renamed(partial(_existing, tables, names_of))
    inputs = graph.inputs(statement) if tables.lake.by_path else statement.tables()
    missing = [table for table in inputs if table not in virtual and not tables.exists(table)]
    if missing:
        candidates = {
            str(table) for layer in {item.layer for item in missing} for table in _candidates(tables, graph, layer)
        }
        text = "; ".join(f"there is no {table}{suggestion(str(table), candidates)}" for table in missing)
        raise ConfigurationError(text, next_step="correct the name, or build the table first")
    return statement


def _existing(tables: TableStore, names_of: NamesOf, reference: Reference) -> TableName:
    """Return the table that *reference* names: its own name, or the name of the collection's table."""
    if reference.table.layer != "silver" or tables.exists(reference.table):
        return reference.table
    return next(filter(tables.exists, names_of(reference.written)), reference.table)


def _candidates(tables: TableStore, graph: Graph, layer: str) -> list[TableName]:
    return tables.names(layer) + [node.table for node in graph.nodes.values() if layer == "gold"]
