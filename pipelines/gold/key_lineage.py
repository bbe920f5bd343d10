"""Which input table the keys of a result come from: what makes a query buildable piece by piece.

A query is *local* to its keys when every row of the result stands on those rows alone of one table (the *driving* one) that have the row's
keys. Then, while all other tables stay as they are, the rows of a key can only change if a driving row with that key did: the keys of the
changed rows, old and new, are all that has to be computed again. The other tables are read whole, so anything may be done to them.

Local are: selection, inner and left joins, and grouping by (at least) the keys, over WITH and subqueries. Not local, and refused with
their line: LIMIT, windows that cross keys, UNION, right and full joins, functions of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from pipelines.gold.statement import DIALECT, Problem, Statement, line_of, nearest, parse_tree
from pipelines.model.tables import TableName

_REFUSED = {
    "limit": "LIMIT",
    "offset": "OFFSET",
    "laterals": "LATERAL VIEW",
    "pivots": "PIVOT",
    "qualify": "QUALIFY",
    "sample": "TABLESAMPLE",
}
# Functions that sqlglot writes back with the meaning they were read with. A key needs no more.
_WRITTEN_BACK = (
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
    """The table whose rows carry the keys, and each key as SQL over its columns, in the order in which they are declared."""

    table: TableName
    keys: tuple[str, ...]
    line: int


class _NotLocal(Exception):
    def __init__(self, node: exp.Expr | None, text: str) -> None:
        self.problem = Problem(0 if node is None else line_of(node), text)
        super().__init__(text)


def find_key_lineage(statement: Statement, keys: Sequence[str]) -> KeyLineage | Problem:
    """Prove that *statement* is local to *keys*. Pure.

    Returns:
        The driving table; or what stands in the way, in line 0 where it is the declaration of the keys itself.
    """
    if statement.volatile:
        first = statement.volatile[0]
        return Problem(
            first.line,
            f"{first.text} changes by itself, so a row may change without its table; use materialized: table",
        )
    try:
        table, expressions = _trace(parse_tree(statement), {key: key for key in keys}, {})
        name = TableName(table.db.lower(), table.name.lower())  # type: ignore[arg-type]  # why: parse_statement has checked the layer
        again = [item for item in statement.references if item.table == name]
        if len(again) > 1:
            raise _NotLocal(
                table, f"{name} is read {len(again)} times; incremental needs it once, use materialized: table"
            )
        if again[0].travels:
            raise _NotLocal(table, f"{name} is read at a fixed version, so it never changes; use materialized: table")
        return KeyLineage(name, tuple(expressions[key] for key in keys), line_of(table))
    except _NotLocal as found:
        return found.problem


def _trace(query: exp.Expr, keys: Mapping[str, str], ctes: Mapping[str, exp.CTE]) -> tuple[exp.Table, dict[str, str]]:
    """Follow *keys* (any name to an output column of *query*) down to their table, and return each as SQL over it."""
    while isinstance(query, exp.Subquery):
        _refuse_clauses(query)
        query = query.this
    if not isinstance(query, exp.Select):
        raise _NotLocal(query, "UNION and its like cannot be built incrementally; use materialized: table")
    visible = {**ctes, **{cte.alias.lower(): cte for cte in query.ctes}}
    _refuse_clauses(query)
    source = _source(query)
    outputs = {item.alias_or_name.lower(): item.unalias() for item in query.selects}
    expressions = {}
    for key, column in keys.items():
        if column not in outputs:
            raise _NotLocal(None, f"keys: the result has no column {column}{nearest(column, outputs)}")
        expressions[key] = _bare(outputs[column], query, source)
    _refuse_crossing(query, [outputs[column] for column in keys.values()])
    cte = visible.get(source.name.lower()) if isinstance(source, exp.Table) and not source.db else None
    if isinstance(source, exp.Table) and cte is None:
        return source, {key: expression.sql(DIALECT) for key, expression in expressions.items()}
    inner = source if cte is None else cte.this
    if cte is not None:
        _refuse_shared(cte)
    for key, expression in expressions.items():
        if not isinstance(expression, exp.Column) or expression.table:
            raise _NotLocal(query, f"key {key} must be taken as it is from {source.alias_or_name}; compute it in there")
    below = {name: entry for name, entry in visible.items() if entry is not cte}
    return _trace(inner, {key: expression.name.lower() for key, expression in expressions.items()}, below)


def _refuse_shared(cte: exp.CTE) -> None:
    if cte.args["alias"].columns:
        raise _NotLocal(cte, "a WITH that renames its columns cannot be followed; name them inside")
    readers = [
        table for table in cte.root().find_all(exp.Table) if not table.db and table.name.lower() == cte.alias.lower()
    ]
    if len(readers) > 1:
        raise _NotLocal(
            readers[1], f"{cte.alias} is read {len(readers)} times; incremental needs it once, use materialized: table"
        )


def _source(query: exp.Select) -> exp.Expr:
    """What stands behind FROM; rows of it must neither vanish from another one's side nor be made up."""
    from_ = query.args.get("from_")
    if from_ is None:
        raise _NotLocal(query, "there is no FROM, so no table that the keys could come from")
    for join in query.args.get("joins") or ():
        if join.side in ("RIGHT", "FULL") or join.kind == "RIGHT" or join.method == "NATURAL":
            raise _NotLocal(
                join,
                f"{join.method or join.side} JOIN cannot be built incrementally; use LEFT or INNER, or materialized: table",
            )
    source: exp.Expr = from_.this
    if not isinstance(source, exp.Table | exp.Subquery) or (
        isinstance(source, exp.Table) and isinstance(source.this, exp.Func)
    ):
        raise _NotLocal(source, "FROM must name a table or a query that the keys come from")
    for clause in ("sample", "pivots", "laterals"):
        if source.args.get(clause):
            raise _NotLocal(source, f"{_REFUSED[clause]} cannot be built incrementally; use materialized: table")
    return source


def _refuse_clauses(query: exp.Select | exp.Subquery) -> None:
    for clause, name in _REFUSED.items():
        found = query.args.get(clause)
        if found:
            node = found[0] if isinstance(found, list) else found
            raise _NotLocal(node, f"{name} looks at rows of all keys; use materialized: table")


def _refuse_crossing(query: exp.Select, keys: Sequence[exp.Expr]) -> None:
    """Groups and windows of this very SELECT must stay within one value of the keys."""
    group = query.args.get("group")
    if group is not None:
        if any(group.args.get(kind) for kind in ("cube", "rollup", "grouping_sets")) or any(
            group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets)
        ):
            raise _NotLocal(group, "ROLLUP, CUBE and GROUPING SETS make rows without a key; use materialized: table")
        groups = [_written(query, item) for item in group.expressions]
        missing = [key for key in keys if key.sql(DIALECT).lower() not in groups]
        if missing and not group.args.get("all"):
            raise _NotLocal(group, f"GROUP BY must hold every key, {missing[0].sql(DIALECT)} is missing")
    for window in _own(query, exp.Window):
        within = [item.sql(DIALECT).lower() for item in window.args.get("partition_by") or ()]
        if any(key.sql(DIALECT).lower() not in within for key in keys):
            raise _NotLocal(window, "a window must PARTITION BY every key; use materialized: table")


def _written(query: exp.Select, item: exp.Expr) -> str:
    """An entry of GROUP BY as the expression it stands for: a number counts the columns, a name may be one's alias."""
    if isinstance(item, exp.Literal) and item.is_int:
        item = query.selects[int(item.name) - 1].unalias()
    elif isinstance(item, exp.Column) and len(item.parts) == 1:
        item = next((output.unalias() for output in query.selects if output.alias.lower() == item.name.lower()), item)
    return item.sql(DIALECT).lower()


def _own(query: exp.Select, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Nodes of *kind* in the columns of *query*, not in queries inside them."""
    for output in query.selects:
        yield from (node for node in output.find_all(kind) if node.find_ancestor(exp.Select) is query)


def _bare(expression: exp.Expr, query: exp.Select, source: exp.Expr) -> exp.Expr:
    """*expression* over the columns of *source*, without its name in front; refused where it may be of another one."""
    alias, joined = source.alias_or_name.lower(), bool(query.args.get("joins"))
    layer = source.db.lower() if isinstance(source, exp.Table) else ""
    stranger = next((node for node in expression.walk() if not isinstance(node, (*_PARTS, *_WRITTEN_BACK))), None)
    if stranger is not None:
        raise _NotLocal(
            expression,
            f"{expression.sql(DIALECT)} cannot be a key: a column, date_trunc, to_date, year, month, cast, coalesce, lower, upper",
        )
    if not any(expression.find_all(exp.Column)):
        raise _NotLocal(expression, f"{expression.sql(DIALECT)} cannot be a key: it is the same in every row")

    def without_name(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        parts = [part.copy() for part in node.parts]
        names = [part.name.lower() for part in parts]
        if len(parts) > 2 and names[:2] == [layer, alias]:
            parts = parts[2:]
        elif len(parts) > 1 and names[0] == alias:
            parts = parts[1:]
        elif joined:
            raise _NotLocal(
                node,
                f"key {node.sql(DIALECT)}: write {alias}.{node.sql(DIALECT)}, so that it is clear which table it is of",
            )
        head, *rest = parts
        return exp.Column(this=head) if not rest else exp.Dot.build([exp.Column(this=head), *rest])

    return expression.copy().transform(without_name)
