"""Rows of Python values as an Arrow table, without pandas: `pa.array` would import it, a sixth of a second."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return *rows* as a table. A column that a row lacks is null."""
    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=schema)])


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz == "UTC":
        return _fixed([None if value is None else (value - _EPOCH) // _MICROSECOND for value in values], kind)
    if pa.types.is_int64(kind):
        return _fixed(values, kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes([value.encode() if isinstance(value, str) else value for value in values], kind)
    return pa.array(values, kind)


def _fixed(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    numbers = array("q", [0 if value is None else value for value in values])
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(numbers.tobytes())])


def _of_bytes(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    ends = array("i", [0])
    for value in values:
        ends.append(ends[-1] + len(value or b""))
    content = pa.py_buffer(b"".join(value or b"" for value in values))
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(ends.tobytes()), content])


def _validity(values: Sequence[Any]) -> pa.Buffer:
    """Return the bitmap in which the bit of a value is 1, unless the value is None."""
    bits = sum(1 << place for place, value in enumerate(values) if value is not None)
    return pa.py_buffer(bits.to_bytes(len(values) // 8 + 1, "little"))
