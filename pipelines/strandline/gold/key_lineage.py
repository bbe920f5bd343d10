"""Lineage of the result keys: the input table that they come from. It decides if a query can be built incrementally.

A query is incremental if each result row depends, in one table (the *driving* table), only on the rows with its keys.
While the other tables are unchanged, the rows of a key change only if a driving row with that key changes.
So only the keys of changed driving rows are computed again: the keys before and after the change.
The other tables are read in full, so the query may use them in any way.

Supported: selection, inner and left joins, GROUP BY with at least the keys, WITH and subqueries.
Rejected, with their line: LIMIT, windows across keys, UNION, right and full joins, functions of the current time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from strandline.gold.functions import reason
from strandline.gold.statement import DIALECT, Problem, Statement, line_of, parse_tree, suggestion
from strandline.model.tables import TableName

_REFUSED = {
    "limit": "LIMIT",
    "offset": "OFFSET",
    "laterals": "LATERAL VIEW",
    "pivots": "PIVOT",
    "qualify": "QUALIFY",
    "sample": "TABLESAMPLE",
}
# Key functions that sqlglot writes back with an unchanged meaning.
_ROUND_TRIP_FUNCTIONS = (
    exp.TimestampTrunc,
    exp.Cast,
    exp.TsOrDsToDate,
    exp.Coalesce,
    exp.Lower,
    exp.Upper,
    exp.Year,
    exp.Month,
)
_PARTS = (exp.Column, exp.Dot, exp.Identifier, exp.Literal, exp.DataType, exp.Var, exp.Paren)


@dataclass(frozen=True)
class KeyLineage:
    """Driving table, and each key as a SQL expression over its columns, in the declared order."""

    table: TableName
    keys: tuple[str, ...]
    line: int


class _NotIncremental(Exception):
    """The query cannot be built incrementally. `problem` gives the reason and its line; line 0: the declared keys."""

    def __init__(self, node: exp.Expr | None, text: str) -> None:
        self.problem = Problem(0 if node is None else line_of(node), text)
        super().__init__(text)


def find_key_lineage(statement: Statement, keys: Sequence[str]) -> KeyLineage | Problem:
    """Find the driving table of *statement* for *keys*. Pure.

    Returns:
        The driving table; or the problem that prevents an incremental build. Line 0: the declared keys are wrong.
    """
    if statement.volatile:
        first = statement.volatile[0]
        return Problem(
            first.line,
            f"{reason(first.text)}, so a row may change without its table; use materialized: table",
        )
    try:
        table, expressions = _trace_keys(parse_tree(statement), {key: key for key in keys}, {})
        name = TableName(table.db.lower(), table.name.lower())  # type: ignore[arg-type]  # why: parse_statement has checked the layer
        reads = [item for item in statement.references if item.table == name]
        if len(reads) > 1:
            raise _NotIncremental(
                table, f"{name} is read {len(reads)} times; incremental needs it once, use materialized: table"
            )
        if reads[0].is_versioned:
            raise _NotIncremental(
                table, f"{name} is read at a fixed version, so it never changes; use materialized: table"
            )
        return KeyLineage(name, tuple(expressions[key] for key in keys), line_of(table))
    except _NotIncremental as found:
        return found.problem


def _trace_keys(
    query: exp.Expr, keys: Mapping[str, str], ctes: Mapping[str, exp.CTE]
) -> tuple[exp.Table, dict[str, str]]:
    """Trace *keys* (output column of *query* by key name) to their table.

    Returns:
        The table, and each key as SQL over its columns.
    """
    while isinstance(query, exp.Subquery):
        _refuse_clauses(query)
        if query.args.get("joins"):
            raise _NotIncremental(query, "a join in parentheses cannot be followed; write it without them")
        query = query.this
    if not isinstance(query, exp.Select):
        raise _NotIncremental(query, "UNION and its like cannot be built incrementally; use materialized: table")
    visible = {**ctes, **{cte.alias.lower(): cte for cte in query.ctes}}
    _refuse_clauses(query)
    source = _driving_source(query)
    outputs = {item.alias_or_name.lower(): item.unalias() for item in query.selects}
    expressions = {}
    for key, column in keys.items():
        if column not in outputs:
            raise _NotIncremental(None, f"keys: the result has no column {column}{suggestion(column, outputs)}")
        expressions[key] = _unqualified_key(outputs[column], query, source)
    _refuse_cross_key_clauses(query, [outputs[column] for column in keys.values()])
    cte = visible.get(source.name.lower()) if isinstance(source, exp.Table) and not source.db else None
    if isinstance(source, exp.Table) and cte is None:
        return source, {key: expression.sql(DIALECT) for key, expression in expressions.items()}
    inner = source if cte is None else cte.this
    if cte is not None:
        _refuse_shared(cte)
    for key, expression in expressions.items():
        if not isinstance(expression, exp.Column) or expression.table:
            raise _NotIncremental(
                query, f"key {key} must be taken as it is from {source.alias_or_name}; compute it in there"
            )
    remaining_ctes = {name: entry for name, entry in visible.items() if entry is not cte}
    return _trace_keys(inner, {key: expression.name.lower() for key, expression in expressions.items()}, remaining_ctes)


def _refuse_shared(cte: exp.CTE) -> None:
    _refuse_renamed_columns(cte)
    readers = [
        table for table in cte.root().find_all(exp.Table) if not table.db and table.name.lower() == cte.alias.lower()
    ]
    if len(readers) > 1:
        raise _NotIncremental(
            readers[1], f"{cte.alias} is read {len(readers)} times; incremental needs it once, use materialized: table"
        )


def _refuse_renamed_columns(source: exp.Expr) -> None:
    alias = source.args.get("alias")
    if alias is not None and alias.columns:
        raise _NotIncremental(source, f"columns renamed by {alias.sql(DIALECT)} cannot be followed; name them inside")


def _driving_source(query: exp.Select) -> exp.Expr:
    """Return the table or subquery after FROM. Reject joins that can drop its rows or add rows without it."""
    from_ = query.args.get("from_")
    if from_ is None:
        raise _NotIncremental(query, "there is no FROM, so no table that the keys could come from")
    for join in query.args.get("joins") or ():
        if join.side in ("RIGHT", "FULL") or join.kind == "RIGHT" or join.method == "NATURAL":
            raise _NotIncremental(
                join,
                f"{join.method or join.side} JOIN cannot be built incrementally; "
                "use LEFT or INNER, or materialized: table",
            )
    source: exp.Expr = from_.this
    if not isinstance(source, exp.Table | exp.Subquery) or (
        isinstance(source, exp.Table) and isinstance(source.this, exp.Func)
    ):
        raise _NotIncremental(source, "FROM must name a table or a query that the keys come from")
    _refuse_renamed_columns(source)
    for clause in ("sample", "pivots", "laterals"):
        if source.args.get(clause):
            raise _NotIncremental(source, f"{_REFUSED[clause]} cannot be built incrementally; use materialized: table")
    return source


def _refuse_clauses(query: exp.Select | exp.Subquery) -> None:
    for clause, name in _REFUSED.items():
        argument = query.args.get(clause)
        if argument:
            node = argument[0] if isinstance(argument, list) else argument
            raise _NotIncremental(node, f"{name} looks at rows of all keys; use materialized: table")


def _refuse_cross_key_clauses(query: exp.Select, keys: Sequence[exp.Expr]) -> None:
    """Reject groups and windows of this SELECT that combine rows with different keys."""
    group = query.args.get("group")
    if group is not None:
        if any(group.args.get(kind) for kind in ("cube", "rollup", "grouping_sets")) or any(
            group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets)
        ):
            raise _NotIncremental(
                group, "ROLLUP, CUBE and GROUPING SETS make rows without a key; use materialized: table"
            )
        groups = [_resolved_group_item(query, item) for item in group.expressions]
        missing = [key for key in keys if _comparable(key) not in groups]
        if missing and not group.args.get("all"):
            raise _NotIncremental(group, f"GROUP BY must hold every key, {missing[0].sql(DIALECT)} is missing")
    for window in _nodes_of(query, exp.Window):
        within = [_comparable(item) for item in window.args.get("partition_by") or ()]
        if any(_comparable(key) not in within for key in keys):
            raise _NotIncremental(window, "a window must PARTITION BY every key; use materialized: table")


def _resolved_group_item(query: exp.Select, item: exp.Expr) -> str:
    """Return the SQL of a GROUP BY item. Resolve column numbers and aliases."""
    if isinstance(item, exp.Literal) and item.is_int:
        item = query.selects[int(item.name) - 1].unalias()
    elif isinstance(item, exp.Column) and len(item.parts) == 1:
        item = next((output.unalias() for output in query.selects if output.alias.lower() == item.name.lower()), item)
    return _comparable(item)


def _comparable(expression: exp.Expr) -> str:
    """Return SQL that is equal for equal expressions: names in small letters, texts as they are."""

    def in_small_letters(node: exp.Expr) -> exp.Expr:
        return exp.to_identifier(node.name.lower(), quoted=True) if isinstance(node, exp.Identifier) else node

    return expression.transform(in_small_letters).sql(DIALECT)


def _nodes_of(query: exp.Select, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield nodes of *kind* in the output columns of *query*, without subqueries."""
    for output in query.selects:
        yield from (node for node in output.find_all(kind) if node.find_ancestor(exp.Select) is query)


def _unqualified_key(expression: exp.Expr, query: exp.Select, source: exp.Expr) -> exp.Expr:
    """Return *expression* without the qualifier of *source*. Reject columns that may belong to another table."""
    alias, joined = source.alias_or_name.lower(), bool(query.args.get("joins"))
    layer = source.db.lower() if isinstance(source, exp.Table) else ""
    unsupported = next(
        (node for node in expression.walk() if not isinstance(node, (*_PARTS, *_ROUND_TRIP_FUNCTIONS))), None
    )
    if unsupported is not None:
        raise _NotIncremental(
            expression,
            f"{expression.sql(DIALECT)} cannot be a key: "
            "a column, date_trunc, to_date, year, month, cast, coalesce, lower, upper",
        )
    if not any(expression.find_all(exp.Column)):
        raise _NotIncremental(expression, f"{expression.sql(DIALECT)} cannot be a key: it is the same in every row")

    def without_qualifier(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        parts = [part.copy() for part in node.parts]
        names = [part.name.lower() for part in parts]
        if len(parts) > 2 and names[:2] == [layer, alias]:
            parts = parts[2:]
        elif len(parts) > 1 and names[0] == alias:
            parts = parts[1:]
        elif joined:
            raise _NotIncremental(
                node,
                f"key {node.sql(DIALECT)}: write {alias}.{node.sql(DIALECT)}, so that it is clear which table it is of",
            )
        head, *rest = parts
        return exp.Column(this=head) if not rest else exp.Dot.build([exp.Column(this=head), *rest])

    return expression.copy().transform(without_qualifier)
