"""Part of Spark SQL that gives the same values in DuckDB. A test compares each construct, value by value, in both.

What is not listed here is not translated, because a translation that runs may still give other rows: Spark counts days
of a week from Sunday, trims and rounds in its own way, and writes a number or a time as text in its own way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from strandline.gold.statement import DIALECT

Types = Mapping[tuple[str, str], Mapping[str, str]]
"""Type of each column, in Spark's words, by the two parts of a table's name."""

_CLASSES: Final = {
    "integer": ("TINYINT", "SMALLINT", "INT", "BIGINT"),
    "double": ("DOUBLE",),
    "decimal": ("DECIMAL",),
    "text": ("VARCHAR", "TEXT"),
    "boolean": ("BOOLEAN",),
    "date": ("DATE",),
    "time": ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"),
}
"""Types of sqlglot by class. Values of one class compare alike in both engines."""
_NUMBERS: Final = frozenset({"integer", "double", "decimal"})
_STRUCTURE: Final = frozenset(
    {
        *(exp.Subquery, exp.With, exp.CTE, exp.Union, exp.From, exp.Table, exp.TableAlias, exp.Where, exp.Group),
        *(exp.Having, exp.Order, exp.Ordered, exp.Distinct, exp.Alias, exp.Column, exp.Dot, exp.Identifier, exp.Paren),
        *(exp.Literal, exp.Boolean, exp.Null, exp.And, exp.Or, exp.Not, exp.Is, exp.Exists, exp.Filter),
        *(exp.DataType, exp.Var),
    }
)
"""Constructs that mean the same, whatever the types of their columns are."""
_UNITS: Final = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})
_WHOLE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?")
_NUMBERED: Final = "strandline"
"""Key under which a node keeps its number while sqlglot rewrites a copy of its tree."""
WHOLE: Final = "whole"
"""Key of the nodes that compute whole numbers."""


def same_in_duckdb(tree: exp.Expr, types: Types | None) -> str | None:
    """Prepare *tree* for DuckDB, in place. Return its first part that may give other values there. None: there is none.

    Sums of integers are cast to Spark's type, averages use Spark's arithmetic, `count_if` becomes `count`.

    Args:
        tree: Query of Spark. Its tables have two-part names.
        types: None: types are not known, and only the constructs are looked at.
    """
    different = _first_different(tree, typed=False) or _shadowing_alias(tree)
    for count in list(tree.find_all(exp.CountIf)):  # DuckDB counts NULL where every condition is NULL
        is_one = exp.If(this=count.this.copy(), true=exp.Literal.number(1))
        count.replace(exp.Count(this=exp.Case(ifs=[is_one])))
    if different is not None or types is None:
        return different
    computing = list(tree.find_all(exp.Sum, exp.Add, exp.Sub, exp.Mul, exp.Neg))
    for number, node in enumerate(computing):
        node.meta[_NUMBERED] = number
    try:
        schema: dict[str, Any] = {}
        for (schema_name, name), columns in types.items():
            schema.setdefault(schema_name, {})[name] = dict(columns)
        typed = annotate_types(qualify(tree.copy(), dialect=DIALECT, schema=schema), schema=schema, dialect=DIALECT)
    except (SqlglotError, ValueError, RecursionError):
        return "a column whose table or type is not clear"
    whole = {
        node.meta.get(_NUMBERED)
        for node in typed.walk()
        if _class(node.this if isinstance(node, exp.Sum) else node) == "integer"
    }
    for node in computing:
        node.meta[WHOLE] = node.meta[_NUMBERED] in whole
    for node in list(tree.find_all(exp.Sum)):
        if node.meta[WHOLE]:
            around = node.parent if isinstance(node.parent, exp.Filter) else node
            around.replace(exp.cast(around.copy(), "BIGINT"))
    for average in list(tree.find_all(exp.Avg)):
        average.set("this", exp.cast(average.this.copy(), "DOUBLE"))
    return _first_different(typed, typed=True)


def _first_different(tree: exp.Expr, *, typed: bool) -> str | None:
    for node in tree.walk(bfs=False):
        rule = (_TYPED if typed else _STRUCTURAL).get(type(node), _always)
        if type(node) not in ALLOWED or not rule(node):
            return node.sql(DIALECT)[:80]
    return None


def _always(_node: exp.Expr) -> bool:
    return True


def _shadowing_alias(tree: exp.Expr) -> str | None:
    """Return an alias that is also a column of its query, if GROUP BY, HAVING or ORDER BY may mean either."""
    for query in tree.find_all(exp.Select):
        clauses = [clause for key in ("group", "having", "order") if (clause := query.args.get(key))]
        used = {column.name.lower() for clause in clauses for column in clause.find_all(exp.Column)}
        for output in query.selects:
            inner = output.unalias()
            columns = {column.name.lower() for column in inner.find_all(exp.Column)}
            if not isinstance(inner, exp.Column) and output.alias.lower() in columns & used:
                return f"{output.sql(DIALECT)} (its name is also a column)"
    return None


def _class(node: exp.Expr) -> str:
    """Return the class of the type of *node*. Empty: another type, or not known."""
    if isinstance(node, exp.TimestampTrunc):
        return "time"
    name = node.type.this.name if node.type is not None else ""
    return next((key for key, names in _CLASSES.items() if name in names), "")


def _same(nodes: Iterable[exp.Expr | None]) -> bool:
    """Return True if all *nodes* are numbers, or all are of one class. NULL fits everywhere."""
    classes = {_class(node) for node in nodes if node is not None and not isinstance(node, exp.Null)}
    return "" not in classes and (len(classes) <= 1 or classes <= _NUMBERS)


def _is_named(query: exp.Select) -> bool:
    """Return False for an output whose name the engine invents, and for ``*`` over a join, whose order differs."""
    joins = [join for join in query.args.get("joins") or () if join.kind not in ("SEMI", "ANTI")]
    if isinstance(query.parent, exp.Exists):
        return True
    return all(
        isinstance(output, exp.Alias | exp.Column | exp.Star)
        and not (joins and (isinstance(output, exp.Star) or isinstance(output.this, exp.Star)))
        for output in query.selects
    )


def _compares(node: exp.Expr) -> bool:
    return _same([node.this, *(node.args.get(key) for key in ("expression", "low", "high")), *node.expressions])


def _adds(node: exp.Expr) -> bool:
    return {_class(node.this), _class(node.expression)} <= {"integer", "double"}


def _aggregates(node: exp.Expr) -> bool:
    return isinstance(node.this, exp.Star) or all(map(_class, _operands(node)))


def _aggregates_numbers(node: exp.Expr) -> bool:
    allowed = {"integer", "double"} if isinstance(node, exp.Avg) else _NUMBERS
    return {_class(operand) for operand in _operands(node)} <= allowed


def _operands(node: exp.Expr) -> list[exp.Expr]:
    return node.this.expressions if isinstance(node.this, exp.Distinct) else [node.this]


def _casts(node: exp.Expr) -> bool:
    target = node.args["to"].this.name
    if isinstance(node.this, exp.Literal) and node.this.is_string:
        return target in (*_CLASSES["date"], *_CLASSES["time"]) and _WHOLE_TIME.fullmatch(node.this.name) is not None
    return (_class(node.this), target) in {
        ("date", "DATE"),
        ("time", "DATE"),
        ("boolean", "INT"),
        ("boolean", "BIGINT"),
        ("integer", "BIGINT"),
        ("integer", "DOUBLE"),
    }


def _is_index(node: exp.Expr) -> bool:
    return len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal) and node.expressions[0].is_int


def _is_plain_pattern(node: exp.Expr) -> bool:
    pattern = node.expression
    return isinstance(pattern, exp.Literal) and pattern.is_string and "\\" not in pattern.name


def _counts_one(node: exp.Expr) -> bool:
    return not node.expressions and (not isinstance(node.this, exp.Distinct) or len(node.this.expressions) == 1)


_Rule = Callable[[Any], bool]
_STRUCTURAL: Final[Mapping[type[exp.Expr], _Rule]] = {
    exp.Select: _is_named,
    exp.Star: lambda node: not any(node.args.values()),
    exp.Join: lambda node: not node.method and node.kind != "LATERAL",
    exp.Bracket: _is_index,
    exp.Like: _is_plain_pattern,
    exp.Count: _counts_one,
    exp.TimestampTrunc: lambda node: node.unit is not None and node.unit.name.upper() in _UNITS,
    exp.In: lambda node: bool(node.expressions),
}
"""Conditions that need no types."""
_TYPED: Final[Mapping[type[exp.Expr], _Rule]] = {
    **dict.fromkeys(
        (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.In, exp.Between), _compares
    ),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _adds),
    **dict.fromkeys((exp.Min, exp.Max, exp.Count), _aggregates),
    **dict.fromkeys((exp.Sum, exp.Avg), _aggregates_numbers),
    **dict.fromkeys((exp.Year, exp.Quarter, exp.Month), lambda node: _class(node.this) in ("date", "time")),
    exp.Neg: lambda node: _class(node.this) in _NUMBERS,
    exp.Cast: _casts,
    exp.TsOrDsToDate: lambda node: _class(node.this) in ("date", "time") and not node.args.get("format"),
    exp.TimestampTrunc: lambda node: _class(node.this) == "time",
    exp.DPipe: lambda node: _class(node.this) == _class(node.expression) == "text",
    exp.Like: lambda node: _class(node.this) == "text",
    exp.Coalesce: lambda node: _same([node.this, *node.expressions]),
    exp.Case: lambda node: (
        node.this is None and _same([node.args.get("default"), *(branch.args["true"] for branch in node.args["ifs"])])
    ),
    exp.If: lambda node: _same([node.args["true"], node.args.get("false")]),
}
"""Conditions on the types of operands."""
ALLOWED: Final = _STRUCTURE | _STRUCTURAL.keys() | _TYPED.keys() | {exp.CountIf}
"""Constructs that may be handed to DuckDB."""
