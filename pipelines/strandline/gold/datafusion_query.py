"""A query of Spark as SQL for DataFusion, which is a part of delta-rs: without a JVM. Pure.

A query that may give other values there, or other names, is not translated. A test compares the values with Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from strandline.errors import ConfigurationError
from strandline.gold.duckdb_subset import WHOLE, same_in_duckdb
from strandline.gold.statement import DIALECT, suggestion
from strandline.gold.view_files import NotTranslated

_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Neg)
ColumnTypes = Mapping[str, Mapping[str, str]]
"""Type of each column, in Spark's words, by the path of its table."""
_UNKNOWN: Final = "unknown"
_DIALECT: Final = "postgres"
"""Dialect that DataFusion reads."""


def datafusion_sql(
    query: str, types: ColumnTypes, names: Mapping[str, str], *, rows: int, computed: Collection[str] = ()
) -> str:
    """Return *query* for DataFusion, with at most *rows* rows. Its result has Spark's names and values.

    Args:
        query: Query of Spark. It names tables by path: ``delta.`…```.
        names: Name of each table in DataFusion, by path.
        computed: Columns that Spark computes when a query reads them.

    Raises:
        NotTranslated: Only Spark answers this query.
        ConfigurationError: A column does not exist.
    """
    try:
        tree = sqlglot.parse_one(query, dialect=DIALECT)
    except (SqlglotError, RecursionError) as error:
        raise NotTranslated(str(error).partition("\n")[0]) from None
    assert isinstance(tree, exp.Query)  # checked by parse_statement
    types = {path: {name: _readable(kind) for name, kind in columns.items()} for path, columns in types.items()}
    _refuse_computed(tree, computed)
    limit = _without_limit(tree)
    _name_outputs(tree)
    _group_by_all(tree)
    spelling = _spelling(tree, types)
    knows_fields = not any(_UNKNOWN in columns.values() for columns in types.values())
    if knows_fields and same_in_duckdb(tree.copy(), None) is None:
        _require_columns(tree, spelling)
    if different := same_in_duckdb(tree, {("delta", path): columns for path, columns in types.items()}):
        raise NotTranslated(f"only Spark computes {different}")
    if any(node.meta.get(WHOLE) and not isinstance(node.this, exp.Literal) for node in tree.find_all(*_ARITHMETIC)):
        raise NotTranslated("only Spark computes arithmetic of whole numbers, which may overflow")
    _spell(tree, spelling)
    _for_datafusion(tree, names)
    return tree.limit(rows if limit is None else min(limit, rows), copy=False).sql(_DIALECT, comments=False)


def _readable(kind: str) -> str:
    """Return the type, or ``unknown`` for a struct whose fields have names that SQL has to quote."""
    return kind if re.fullmatch(r"[\w<>:,()]*", kind) else _UNKNOWN


def _refuse_computed(tree: exp.Query, computed: Collection[str]) -> None:
    if any(table.args.get("version") or table.args.get("when") for table in tree.find_all(exp.Table)):
        raise NotTranslated("only Spark reads an older version of a table")
    if computed:
        stars = [star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count)]
        if stars or any(part.name.lower() in computed for part in tree.find_all(exp.Identifier)):
            raise NotTranslated(f"only Spark computes {', '.join(computed)}")


def _without_limit(tree: exp.Query) -> int | None:
    """Remove the limit of *tree*, in place, and return it. None: there is none."""
    limit = tree.args.get("limit")
    if limit is None:
        return None
    if not isinstance(limit, exp.Limit) or not isinstance(limit.expression, exp.Literal) or not limit.expression.is_int:
        raise NotTranslated("only Spark computes a limit")
    tree.set("limit", None)
    return int(limit.expression.name)


def _name_outputs(tree: exp.Query) -> None:
    """Give outputs without a name the name that Spark gives them, where that is plain. In place."""
    if isinstance(tree, exp.Select):
        for output in tree.selects:
            if name := _sparks_name(output):
                output.replace(exp.alias_(output.copy(), name, quoted=True))


def _sparks_name(output: exp.Expr) -> str:
    if not isinstance(output, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max):
        return ""
    function, operand = output.key, output.this
    if isinstance(operand, exp.Star):
        return f"{function}(1)"
    distinct = isinstance(operand, exp.Distinct) and len(operand.expressions) == 1
    column = operand.expressions[0] if distinct else operand
    if not isinstance(column, exp.Column) or len(column.parts) > 1:
        return ""
    return f"{function}({'DISTINCT ' if distinct else ''}{column.name})"


def _group_by_all(tree: exp.Query) -> None:
    """Write the columns of ``GROUP BY ALL``. In place."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        if group is not None and group.args.get("all"):
            plain = [output.unalias().copy() for output in select.selects if not output.find(exp.AggFunc)]
            select.set("group", exp.Group(expressions=plain) if plain else None)


def _spelling(tree: exp.Query, types: ColumnTypes) -> dict[str, set[str]]:
    """Return how the names of columns, fields and aliases are written, by their text in lower case."""
    spelling: dict[str, set[str]] = {}
    for name in (*_stored_names(types), *(name for node in tree.walk() for name in _aliases(node))):
        spelling.setdefault(name.lower(), set()).add(name)
    return spelling


def _stored_names(types: ColumnTypes) -> Iterator[str]:
    for columns in types.values():
        for column, kind in columns.items():
            yield column
            for field in exp.DataType.build(kind, dialect=DIALECT).find_all(exp.ColumnDef):
                yield field.name


def _aliases(node: exp.Expr) -> Iterator[str]:
    if isinstance(node, exp.Alias):
        yield node.alias
    elif isinstance(node, exp.TableAlias):
        yield from (part.name for part in (node.this, *node.columns) if part is not None)


def _require_columns(tree: exp.Query, spelling: Mapping[str, Collection[str]]) -> None:
    for column in tree.find_all(exp.Column):
        if not isinstance(column.this, exp.Star) and column.name.lower() not in spelling:
            columns = sorted(name for names in spelling.values() for name in names)
            raise ConfigurationError(
                f"there is no column {column.name}{suggestion(column.name, columns)}", next_step="correct the query"
            )


def _spell(tree: exp.Query, spelling: Mapping[str, Collection[str]]) -> None:
    """Write each name of *tree* as its column or alias has it. In place: DataFusion tells upper from lower case."""
    outputs = [output for output in tree.selects if isinstance(output, exp.Column) and not output.is_star]
    written = [output.name for output in outputs]
    for part in list(tree.find_all(exp.Identifier)):
        if part.find_ancestor(exp.DataType, exp.Var) is not None or part.find_ancestor(exp.Table) is part.parent:
            continue
        names = spelling.get(part.name.lower(), {part.name})
        if len(names) > 1:
            raise NotTranslated(f"only Spark reads one name in several spellings: {', '.join(sorted(names))}")
        part.set("this", next(iter(names)))
        part.set("quoted", True)
    for output, name in zip(outputs, written, strict=True):
        if len(output.parts) > 1 or output.name != name:
            output.replace(exp.alias_(output.copy(), name, quoted=True))


def _for_datafusion(tree: exp.Query, names: Mapping[str, str]) -> None:
    """Write *tree* with the names and functions of DataFusion. In place."""
    for table in tree.find_all(exp.Table):
        if table.db.lower() == "delta":
            table.set("this", exp.to_identifier(names[table.name], quoted=True))
            table.set("db", None)
    for total in list(tree.find_all(exp.Sum)):
        if total.meta.get(WHOLE):  # an overflow is an error, as in Spark
            total.set("this", exp.cast(total.this.copy(), "DECIMAL(38, 0)"))
    for quarter in list(tree.find_all(exp.Quarter)):
        quarter.replace(exp.Extract(this=exp.var("QUARTER"), expression=quarter.this.copy()))
