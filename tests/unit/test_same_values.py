"""Values of two columns are compared bit by bit, nested ones too."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from strandline.silver.same_values import same_values

_INNER = pa.struct({"x": pa.int64(), "d": pa.float64(), "l": pa.list_(pa.string())})
_TYPES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["", "a", "ab"],
    pa.binary(): [b"", b"\0"],
    pa.float64(): [0.0, -0.0, 1.5, float("nan")],
    pa.bool_(): [True, False],
    pa.decimal128(38, 2): [Decimal("0.10"), Decimal("0.20")],
    pa.timestamp("us", "UTC"): [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)],
}


def _value(chance: random.Random, kind: pa.DataType) -> Any:
    if chance.random() < 0.2:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(chance, field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_value(chance, kind.value_type) for _ in range(chance.randrange(3))]
    return chance.choice(_TYPES.get(kind, [1, 2]))


def _bits(value: Any) -> Any:
    """Return *value* with the bits of its numbers: ``==`` does not tell zeros apart, and finds NaN unlike itself."""
    if isinstance(value, dict):
        return {name: _bits(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_bits(inner) for inner in value]
    return struct.pack("<d", value) if isinstance(value, float) else value


@pytest.mark.parametrize(
    "kind", [*_TYPES, pa.int32(), _INNER, pa.list_(_INNER), pa.list_(pa.list_(pa.float64())), pa.struct([])], ids=str
)
def test_values_are_the_same_if_their_bits_are(kind: pa.DataType) -> None:
    chance = random.Random(5)
    one, other = ([_value(chance, kind) for _ in range(400)] for _ in range(2))
    other = [left if chance.random() < 0.3 else right for left, right in zip(one, other, strict=True)]
    columns = [pa.chunked_array([values[:150], values[150:]], kind) for values in (one, other)]
    assert same_values(*columns).tolist() == [
        _bits(left) == _bits(right) for left, right in zip(one, other, strict=True)
    ]
    assert (
        same_values(*(column.slice(140, 20) for column in columns)).tolist() == same_values(*columns)[140:160].tolist()
    )


def test_columns_without_rows_are_the_same() -> None:
    assert same_values(pa.array([], _INNER), pa.array([], _INNER)).tolist() == []
