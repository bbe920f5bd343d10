"""Queries of an opened table, answered by delta-rs. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from strandline.model.query import Query

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def result(tables: Mapping[str, DeltaTable], sql: str) -> list[dict[str, Any]]:
    """I/O: returns the rows of *sql*, in which each table has its name in *tables*."""
    builder = QueryBuilder()
    for name, table in tables.items():
        builder.register(name, table)
    return python_rows(arrow_table(builder.execute(sql).read_all()))


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return *rows* as Python's values. Instants are in UTC."""
    columns = map(_values, rows.columns)
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return Python's values. For times with a zone Arrow would import pandas: a sixth of a second."""
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]  # why: pyarrow has no types
    instants = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if instant is None else _EPOCH + timedelta(microseconds=instant) for instant in instants]


def arrow_table(of_delta_rs: Any) -> pa.Table:
    """Return a table of the library. `pa.table` would import pandas: a sixth of a second."""
    return pa.RecordBatchReader.from_stream(of_delta_rs).read_all()


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """Return the columns of *table*, without their comments: those would stand in every data file."""
    return pa.schema([pa.field(one.name, one.type) for one in pa.schema(table.schema().to_arrow())])


def without_views(rows: pa.Table) -> pa.Table:
    """Return *rows* with plain strings and bytes. DataFusion gives views, for which Arrow lacks functions."""
    return rows.cast(pa.schema([field.with_type(_plain(field.type)) for field in rows.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def from_statistics(table: DeltaTable, query: Query) -> list[dict[str, Any]] | None:
    """I/O: returns the result of a query of largest integers, from the statistics of the files. No file is opened.

    None: another query, or a file lacks these statistics. DataFusion would open every file.
    """
    maxima = [(column, name) for function, column, name in query.columns if function == "max"]
    if len(maxima) < len(query.columns) or query.conditions or query.grouped_by:
        return None
    files = arrow_table(table.get_add_actions(flatten=True))
    answers: dict[str, Any] = {}
    for column, name in maxima:
        if not {f"max.{column}", f"null_count.{column}"} <= set(files.schema.names):
            return None
        largest, nulls = files[f"max.{column}"], files[f"null_count.{column}"]
        is_known = pc.or_(largest.is_valid(), pc.equal(nulls, files["num_records"]))
        if not pa.types.is_integer(largest.type) or not pc.all(is_known, skip_nulls=False).as_py():
            return None
        answers[name] = pc.max(largest).as_py()
    return [answers]
