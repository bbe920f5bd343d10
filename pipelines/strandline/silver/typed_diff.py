"""Rows of a silver or history table whose columns do not show their document. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.model.bson.id_order import id_document
from strandline.model.shape import Shape
from strandline.model.tables import quoted
from strandline.silver.decode.rows import with_variants
from strandline.silver.typed_check import check_row

_CHECKED_DDL: Final = "key STRING, position STRING, identifier BINARY, wrong ARRAY<STRING>, late ARRAY<STRING>"
_CHECKED: Final = pa.schema(
    {
        **{"key": pa.string(), "position": pa.string(), "identifier": pa.binary()},
        **dict.fromkeys(("wrong", "late"), pa.list_(pa.string())),
    }
)

_FACTS: Final = ("_key", "_position", "_document", "_rescued")

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def unlike_documents(rows: DataFrame, shape: Shape) -> DataFrame:
    """Compare every column and ``_rescued`` of each row with its ``_document``.

    Args:
        rows: Rows of a silver or history table.
        shape: Stored shape of the table.

    Returns:
        ``key``, ``position``, ``identifier``, and the fields `RowCheck.wrong` and `RowCheck.late`. Only rows with one.
    """
    # `mapInArrow` finds its columns by their unquoted names: a name with a dot would be a path.
    columns = [
        with_variants(F.col(quoted(name)), inner, F.to_json).alias(f"c{number}")
        for number, (name, inner) in enumerate(shape.columns())
    ]
    rescued = F.col("_rescued").cast("string") if _is_text(rows.schema["_rescued"].dataType) else F.to_json("_rescued")
    typed_documents = rows.select("_key", "_position", "_document", rescued.alias("_rescued"), *columns)
    return typed_documents.mapInArrow(checking(shape), _CHECKED_DDL)


def _is_text(kind: T.DataType) -> bool:
    return isinstance(kind, T.StringType)


def checking(shape: Shape) -> Batches:
    """Return the function that compares batches of rows: see `unlike_documents`.

    A batch has the columns `_FACTS`, and the table's columns in the order of *shape*. VARIANTs are JSON texts.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Times as microseconds: a time zone would move the first and last ones out of Python's years.
            schema = pa.schema([pa.field(column.name, _with_numbers(column.type)) for column in batch.schema])
            rows = batch.cast(schema).to_pylist()
            yield pa.RecordBatch.from_pylist(list(_checked(shape, rows)), schema=_CHECKED)

    return run


def _checked(shape: Shape, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    names = [name for name, _ in shape.columns()]
    for row in rows:
        document = row["_document"]
        values = (value for name, value in row.items() if name not in _FACTS)
        check = check_row(document, shape, dict(zip(names, values, strict=True)), row["_rescued"])
        if check.wrong or check.late:
            identifier = None if document is None else id_document(document)
            columns = {"key": row["_key"], "position": row["_position"], "identifier": identifier}
            yield columns | {"wrong": list(check.wrong), "late": list(check.late)}


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(inner.name, _with_numbers(inner.type)) for inner in kind])
    if pa.types.is_list(kind):
        return pa.list_(_with_numbers(kind.value_type))
    return pa.int64() if pa.types.is_timestamp(kind) else kind
