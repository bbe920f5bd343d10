"""Columns of the input tables from which each column of a gold node is made, by sqlglot's lineage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node as Step
from sqlglot.lineage import lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import build_scope

from strandline.gold.graph import Graph, Node
from strandline.gold.statement import DIALECT, parse_tree
from strandline.model.lineage import ColumnSource, Transformation
from strandline.model.tables import TableName

_BY_STRENGTH: Final[tuple[Transformation, ...]] = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")
Columns = Callable[[TableName], Sequence[str]]
"""Names of the columns of a stored table."""


class NoColumnLineage(Exception):
    """The columns of a query cannot be followed. The text is the reason, in one line."""


def column_lineage(graph: Graph, node: Node, columns: Columns) -> dict[str, tuple[ColumnSource, ...]]:
    """Return the sources of each column of *node*'s query, in the order of the query.

    A gold view counts as a table of its own. A column without a source, such as a constant, has an empty entry.

    Args:
        columns: Returns the columns of a table that the query, or a view in it, reads.

    Raises:
        NoColumnLineage: sqlglot cannot follow the query.
    """
    try:
        return _column_lineage(graph, node, columns)
    except (SqlglotError, ValueError, RecursionError) as error:
        raise NoColumnLineage(" ".join(f"{type(error).__name__}: {error}".split())[:200]) from error


def _column_lineage(graph: Graph, node: Node, columns: Columns) -> dict[str, tuple[ColumnSource, ...]]:
    columns_of = _known_columns(graph, node, columns)
    tree = _qualified(node, columns_of)
    scope = build_scope(tree)
    if scope is None:
        raise NoColumnLineage("it is no SELECT")
    upstream = {}
    for column in tree.named_selects:
        step = lineage(column, tree, schema={}, scope=scope, dialect=DIALECT, trim_selects=False, copy=False)
        upstream[column] = tuple(dict.fromkeys(_sources(step, "IDENTITY", columns_of)))
    return upstream


def _known_columns(graph: Graph, node: Node, columns: Columns) -> dict[TableName, Sequence[str]]:
    """Return the columns of every table and view that *node* names."""
    columns_of: dict[TableName, Sequence[str]] = {}
    for table in node.statement.tables():
        view = graph.view(table)
        columns_of[table] = columns(table) if view is None else list(_column_lineage(graph, view, columns))
    return columns_of


def _qualified(node: Node, columns_of: Mapping[TableName, Sequence[str]]) -> exp.Query:
    """Return the query with the table of each column written out, and without ``*``."""
    schema: dict[str, Any] = {}
    for table, names in columns_of.items():
        schema.setdefault(table.layer, {})[table.name] = dict.fromkeys(names, "unknown")
    tree = qualify(
        parse_tree(node.statement), dialect=DIALECT, schema=schema, validate_qualify_columns=False, identify=False
    )
    if not isinstance(tree, exp.Query):
        raise NoColumnLineage("it is no query")
    return tree


def _sources(
    step: Step, above: Transformation, columns_of: Mapping[TableName, Sequence[str]]
) -> Iterator[ColumnSource]:
    """Yield the columns of tables at the end of *step*, with the strongest transformation on the way there."""
    if isinstance(step.expression, exp.Table):
        table = TableName(step.expression.db.lower(), step.expression.name.lower())  # type: ignore[arg-type]  # why: parse_statement has checked the layer
        name = exp.to_column(step.name, dialect=DIALECT).name.lower()
        yield from (
            ColumnSource(table, column, above) for column in columns_of.get(table, ()) if column.lower() == name
        )
        return
    strongest = max(above, _transformation(step.expression), key=_BY_STRENGTH.index)
    for below in step.downstream:
        yield from _sources(below, strongest, columns_of)


def _transformation(projection: exp.Expr) -> Transformation:
    made_by = projection.unalias()
    if isinstance(made_by, exp.Column):
        return "IDENTITY"
    return "TRANSFORMATION" if made_by.find(exp.AggFunc) is None else "AGGREGATION"
