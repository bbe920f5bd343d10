"""Columns of a table as Spark shows them, at every level of nesting: find and test them. Pure, lazy."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.model.shape import fold_case, needs_mapping

Path = tuple[str, ...]
"""Names from the top to a column. ``element`` stands for the elements of an array, as in `SchemaChange`."""


def column_paths(schema: T.DataType, prefix: Path = ()) -> dict[Path, tuple[Path, T.DataType]]:
    """Return path and type of every column, by the `fold_case` path."""
    if isinstance(schema, T.ArrayType):
        return column_paths(schema.elementType, (*prefix, "element"))
    if not isinstance(schema, T.StructType):
        return {}
    paths: dict[Path, tuple[Path, T.DataType]] = {}
    for column in schema.fields:
        path = (*prefix, column.name)
        paths |= {tuple(map(fold_case, path)): (path, column.dataType)} | column_paths(column.dataType, path)
    return paths


def names_to_map(schema: T.DataType, path: Path = ()) -> list[Path]:
    """Return *path*, and the columns of *schema* below it, whose own name needs column mapping."""
    return [
        at
        for at in (path, *(path_below for path_below, _ in column_paths(schema, path).values()))
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
