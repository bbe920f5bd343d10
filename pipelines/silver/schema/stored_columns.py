"""Columns of a table as Spark shows them, at every level of nesting: find, test and drop them. Pure, lazy."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.model.shape import fold_case, needs_mapping
from pipelines.model.tables import quoted

Path = tuple[str, ...]
"""Names from the top to a column. ``element`` stands for the elements of an array, as in `SchemaChange`."""


def column_paths(schema: T.DataType, prefix: Path = ()) -> dict[Path, tuple[Path, T.DataType]]:
    """Return path and type of every column, by the `fold_case` path."""
    if isinstance(schema, T.ArrayType):
        return column_paths(schema.elementType, (*prefix, "element"))
    if not isinstance(schema, T.StructType):
        return {}
    found: dict[Path, tuple[Path, T.DataType]] = {}
    for column in schema.fields:
        path = (*prefix, column.name)
        found |= {tuple(map(fold_case, path)): (path, column.dataType)} | column_paths(column.dataType, path)
    return found


def names_to_map(schema: T.DataType, path: Path = ()) -> list[Path]:
    """Return *path*, and the columns of *schema* below it, whose own name needs column mapping."""
    return [
        at
        for at in (path, *(found for found, _ in column_paths(schema, path).values()))
        if at and needs_mapping(at[-1])
    ]


def has_value(column: Column, kind: T.DataType, path: Sequence[str]) -> Column:
    """Return a column: true if there is a value at *path* below *column*, which has the type *kind*."""
    if not path:
        return column.isNotNull()
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.exists(column, lambda item: has_value(item, element, path[1:]))
    assert isinstance(kind, T.StructType)  # `column_paths` returns no other path
    return has_value(column[path[0]], kind[path[0]].dataType, path[1:])


def without_columns(rows: DataFrame, paths: Collection[Path]) -> DataFrame:
    """Return *rows* without the columns at *paths*. Other columns keep their place and comment."""
    kept = [column for column in rows.schema.fields if (column.name,) not in paths]
    columns = []
    for column in kept:
        below = [path[1:] for path in paths if path[0] == column.name]
        value = F.col(quoted(column.name))
        changed = _without(value, column.dataType, below) if below else value
        columns.append(changed.alias(column.name, metadata=column.metadata))
    return rows.select(*columns)


def _without(column: Column, kind: T.DataType, paths: Sequence[Path]) -> Column:
    if isinstance(kind, T.ArrayType):
        element, below = kind.elementType, [path[1:] for path in paths]
        return F.transform(column, lambda item: _without(item, element, below))
    assert isinstance(kind, T.StructType)  # `column_paths` returns no other path
    for field in kind.fields:
        below = [path[1:] for path in paths if path[0] == field.name]
        if () in below:
            column = column.dropFields(quoted(field.name))
        elif below:
            column = column.withField(quoted(field.name), _without(column[field.name], field.dataType, below))
    return column
