"""SQL text for schemas, properties and CREATE TABLE.

In a Spark Connect session `StructType.toDDL` works only in the thread that opened the session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from strandline.model.tables import literal, quoted


def columns_ddl(schema: T.StructType) -> str:
    """Return the columns as SQL: name, type, NOT NULL and comment. Names may contain any character."""
    return ", ".join(_column(field, " ") for field in schema.fields)


def _column(field: T.StructField, separator: str) -> str:
    comment = (field.metadata or {}).get("comment")
    required = "" if field.nullable else " NOT NULL"
    described = f" COMMENT {literal(comment)}" if comment else ""
    return f"{quoted(field.name)}{separator}{_type(field.dataType)}{required}{described}"


def _type(kind: T.DataType) -> str:
    if isinstance(kind, T.StructType):
        return f"STRUCT<{', '.join(_column(field, ': ') for field in kind.fields)}>"
    if isinstance(kind, T.ArrayType):
        return f"ARRAY<{_type(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"MAP<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    return kind.simpleString()


def properties_clause(properties: Mapping[str, str]) -> str:
    """Return ``TBLPROPERTIES (…)``, sorted by name. Values may contain any character."""
    pairs = (f"{literal(key)} = {literal(value)}" for key, value in sorted(properties.items()))
    return f"TBLPROPERTIES ({', '.join(pairs)})"


def create_statement(
    table: str, schema: T.StructType, properties: Mapping[str, str], cluster_by: Sequence[str], comment: str
) -> str:
    """Return ``CREATE TABLE IF NOT EXISTS`` for a Delta table. *table* must be quoted."""
    parts = [f"CREATE TABLE IF NOT EXISTS {table} ({columns_ddl(schema)}) USING delta"]
    parts += [properties_clause(properties)] if properties else []
    parts += [f"CLUSTER BY ({', '.join(quoted(column) for column in cluster_by)})"] if cluster_by else []
    parts += [f"COMMENT {literal(comment)}"] if comment else []
    return " ".join(parts)


def view_definition(query: str, columns: Mapping[str, str], comment: str) -> str:
    """Return the part of ``CREATE VIEW`` after the name. *columns* maps every column to its comment, or to ''."""
    listed = ", ".join(
        f"{quoted(name)} COMMENT {literal(text)}" if text else quoted(name) for name, text in columns.items()
    )
    return f"({listed}) COMMENT {literal(comment)} AS {query}"


def with_comments(rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Return *rows* with the comment of each column that has one. A table keeps them."""
    for name, text in columns.items():
        if text:
            rows = rows.withMetadata(name, {"comment": text})
    return rows


def schema_of(ddl: str) -> T.StructType:
    """Return the schema that *ddl* (columns, separated by commas) describes.

    Raises:
        TypeError: It describes a single type.
    """
    schema = T.StructType.fromDDL(ddl)
    if not isinstance(schema, T.StructType):
        raise TypeError("columns are expected")
    return schema
