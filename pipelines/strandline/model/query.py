"""A query with a small result, as SQL for Spark and for DataFusion. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from strandline.model.tables import TableName, literal, quoted

Condition = tuple[str, str, object]
"""Column, operator and value: ``("batch", ">", 5)``. Operators: ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``, ``in`` (a
collection, not empty), ``is null`` and ``is not null`` (value None), ``not like`` (a pattern), ``token >`` (compares a
position's token)."""

_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_NULL_TESTS: Final = frozenset({"is null", "is not null"})
_FUNCTIONS: Final = frozenset({"max", "min", "count", "count_distinct", "sum"})


@dataclass(frozen=True)
class Dialect:
    """Writes names and values as one SQL engine reads them."""

    name: Callable[[str], str]
    text: Callable[[str], str]
    time: Callable[[datetime], str]
    sha256: Callable[[str], str]
    """Hexadecimal digits of the digest of a column of bytes."""

    def value(self, value: object) -> str:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, datetime):
            return self.time(value)
        raise TypeError(f"{type(value).__name__} has no SQL literal here")

    def condition(self, condition: Condition) -> str:
        column, operator, value = condition
        name = self.name(column)
        if operator in _COMPARISONS:
            return f"{name} {operator} {self.value(value)}"
        if operator == "token >":
            return f"split_part({name}, ':', 2) > {self.value(value)}"
        if operator == "not like":
            return f"{name} NOT LIKE {self.value(value)}"
        if operator in _NULL_TESTS and value is None:
            return f"{name} {operator}"
        if operator == "in" and isinstance(value, Collection) and not isinstance(value, str) and value:
            return f"{name} IN ({', '.join(sorted(map(self.value, value)))})"
        raise ValueError(f"unsupported operator or value: {operator} {type(value).__name__}")

    def where(self, conditions: Iterable[tuple[Condition, ...]]) -> str:
        """Return a condition that holds if of each tuple at least one condition holds. Without conditions: empty."""
        return " AND ".join(f"({' OR '.join(map(self.condition, alternatives))})" for alternatives in conditions)


SPARK: Final = Dialect(quoted, literal, literal, lambda name: f"sha2({name}, 256)")
DATAFUSION: Final = Dialect(
    lambda name: '"' + name.replace('"', '""') + '"',
    lambda value: "'" + value.replace("'", "''") + "'",
    # As Delta stores times: a plain TIMESTAMP has nanoseconds, which a delete refuses to compare.
    lambda value: f"arrow_cast('{value.astimezone(UTC).isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')",
    lambda name: f"encode(sha256({name}), 'hex')",
)


@dataclass(frozen=True)
class Query:
    """Selects rows, or aggregates of rows, of one table.

        newest = Query(bronze).select("batch", "writer").where(("op", "=", "c")).order("-batch").limit(1)

    Args:
        columns: Columns of the result, as (function, column, name in the result). Function None: the column itself.
        conditions: All must hold. Each is a tuple of alternatives.
        ordered_by: Columns. A minus before the name: largest first. Nulls come last.
        version: Version of the table. None: the newest.
    """

    table: TableName
    columns: tuple[tuple[str | None, str, str], ...] = ()
    conditions: tuple[tuple[Condition, ...], ...] = ()
    grouped_by: tuple[str, ...] = ()
    ordered_by: tuple[str, ...] = ()
    row_limit: int | None = None
    version: int | None = None

    def select(self, *columns: str) -> Query:
        return replace(self, columns=(*self.columns, *((None, column, column) for column in columns)))

    def digest(self, **named: str) -> Query:
        """Add SHA-256 digests of columns of bytes, in hexadecimal digits: ``digest="envelope"``. Null stays null."""
        added = tuple(("sha256", column, name) for name, column in named.items())
        return replace(self, columns=(*self.columns, *added))

    def aggregate(self, **named: tuple[str, str]) -> Query:
        """Add aggregates: ``newest=("max", "batch")``. Functions: max, min, sum, count, count_distinct."""
        if wrong := {function for function, _ in named.values()} - _FUNCTIONS:
            raise ValueError(f"unknown aggregate function: {wrong}")
        added = tuple((function, column, name) for name, (function, column) in named.items())
        return replace(self, columns=(*self.columns, *added))

    def where(self, *conditions: Condition) -> Query:
        """Keep only rows for which all of *conditions* hold."""
        return replace(self, conditions=(*self.conditions, *((condition,) for condition in conditions)))

    def where_any(self, *alternatives: Condition) -> Query:
        """Keep only rows for which at least one of *alternatives* holds."""
        return replace(self, conditions=(*self.conditions, alternatives))

    def group(self, *columns: str) -> Query:
        return replace(self, grouped_by=columns).select(*columns)

    def order(self, *columns: str) -> Query:
        return replace(self, ordered_by=columns)

    def limit(self, rows: int) -> Query:
        return replace(self, row_limit=rows)

    def sql(self, dialect: Dialect, table: str) -> str:
        """Return the query as SQL. *table* must be quoted."""
        parts = [f"SELECT {', '.join(_column(dialect, *column) for column in self.columns)} FROM {table}"]
        if self.conditions:
            parts.append(f"WHERE {dialect.where(self.conditions)}")
        if self.grouped_by:
            parts.append(f"GROUP BY {', '.join(map(dialect.name, self.grouped_by))}")
        if self.ordered_by:
            parts.append(f"ORDER BY {', '.join(_order(dialect, column) for column in self.ordered_by)}")
        if self.row_limit is not None:
            parts.append(f"LIMIT {self.row_limit:d}")
        return " ".join(parts)


def _column(dialect: Dialect, function: str | None, column: str, name: str) -> str:
    source = dialect.name(column)
    if function is None:
        return source
    if function == "sha256":
        return f"{dialect.sha256(source)} AS {dialect.name(name)}"
    inside = f"count(DISTINCT {source})" if function == "count_distinct" else f"{function}({source})"
    return f"{inside} AS {dialect.name(name)}"


def _order(dialect: Dialect, column: str) -> str:
    descending = column.startswith("-")
    return f"{dialect.name(column.removeprefix('-'))} {'DESC' if descending else 'ASC'} NULLS LAST"
