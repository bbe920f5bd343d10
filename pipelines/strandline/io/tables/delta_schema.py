"""Schema of a Delta table from DDL text, without Spark."""

from __future__ import annotations

import json
from typing import Any, Final

import sqlglot
from deltalake import Schema
from sqlglot import exp

_TYPES: Final = {
    "BIGINT": "long",
    "INT": "integer",
    "DOUBLE": "double",
    "BOOLEAN": "boolean",
    "TEXT": "string",
    "VARBINARY": "binary",
    "BINARY": "binary",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMP": "timestamp",
    "DATE": "date",
}
"""Delta's names by sqlglot's names of types."""


def delta_schema(ddl: str) -> Schema:
    """Return the schema that *ddl* (columns, separated by commas) describes. Comments are kept."""
    statement = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", read="databricks")
    fields = [_field(column) for column in statement.this.expressions]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def _field(column: exp.ColumnDef) -> dict[str, Any]:
    comment = next(
        (
            constraint.kind
            for constraint in column.constraints
            if isinstance(constraint.kind, exp.CommentColumnConstraint)
        ),
        None,
    )
    metadata = {} if comment is None else {"comment": comment.this.this}
    return {"name": column.name, "type": _type(column.kind), "nullable": True, "metadata": metadata}


def _type(kind: Any) -> Any:
    if kind.is_type("struct"):
        return {"type": "struct", "fields": [_field(column) for column in kind.expressions]}
    if kind.is_type("array"):
        return {"type": "array", "elementType": _type(kind.expressions[0]), "containsNull": True}
    if kind.is_type("decimal"):
        return f"decimal({','.join(one.name for one in kind.expressions)})"
    return _TYPES[kind.this.name]
