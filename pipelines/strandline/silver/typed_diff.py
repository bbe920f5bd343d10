"""Rows of a silver or history table whose columns do not show their document. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.io.spark import column_functions as F
from strandline.model.bson.id_order import id_document
from strandline.model.shape import Shape
from strandline.model.tables import quoted
from strandline.model.tenants import without_groups
from strandline.silver.decode.batch_decoder import BatchDecoder
from strandline.silver.decode.batch_documents import small_parts
from strandline.silver.decode.rows import with_variants
from strandline.silver.typed_check import check_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T

_CHECKED_DDL: Final = "key STRING, position STRING, identifier BINARY, wrong ARRAY<STRING>, late ARRAY<STRING>"
CHECKED: Final = pa.schema(
    {
        **{"key": pa.string(), "position": pa.string(), "identifier": pa.binary()},
        **dict.fromkeys(("wrong", "late"), pa.list_(pa.string())),
    }
)

COUNTS: Final = pa.schema({"wrong": pa.int64(), "late": pa.int64()})
WRONG: Final = pa.schema(
    [*(CHECKED.field(name) for name in ("key", "position", "identifier")), ("paths", pa.list_(pa.string()))]
)
_OWN_RULES_FOR: Final = 256
COMPARED: Final = ("_key", "_position", "_document", "_rescued")

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def unlike_documents(rows: DataFrame, shape: Shape, *, own_rules_for: int = _OWN_RULES_FOR) -> DataFrame:
    """Compare every column and ``_rescued`` of each row with its ``_document``.

    Args:
        rows: Rows of a silver or history table.
        shape: Stored shape of the table.
        own_rules_for: As for `checking`.

    Returns:
        ``key``, ``position``, ``identifier``, and the fields `RowCheck.wrong` and `RowCheck.late`. Only rows with one.
    """
    return stored_rows(rows, shape).mapInArrow(checking(shape, own_rules_for=own_rules_for), _CHECKED_DDL)


def stored_rows(rows: DataFrame, shape: Shape) -> DataFrame:
    """Return the columns that `checking` compares, of rows of a silver or history table."""
    # `mapInArrow` finds its columns by their unquoted names: a name with a dot would be a path.
    columns = [
        with_variants(F.col(quoted(name)), inner, F.to_json).alias(f"c{number}")
        for number, (name, inner) in enumerate(shape.columns())
    ]
    rescued = F.col("_rescued").cast("string") if _is_text(rows.schema["_rescued"].dataType) else F.to_json("_rescued")
    return rows.select("_key", "_position", "_document", rescued.alias("_rescued"), *columns)


def _is_text(kind: T.DataType) -> bool:
    return kind.typeName() == "string"


def checking(
    shape: Shape, groups: Mapping[str, str | None] = MappingProxyType({}), *, own_rules_for: int = _OWN_RULES_FOR
) -> Batches:
    """Return the function that compares batches of rows: see `unlike_documents`.

    The documents of a batch are decoded together. Rows that differ from that are compared by rules of their own
    (`check_row`), which decide. So is one row of some, however it compares: the decoder itself may be wrong.

    A batch has the columns `COMPARED`, and the table's columns in the order of *shape*. VARIANTs are JSON texts.

    Args:
        groups: Value of each column that shows a group of a tenant table.
        own_rules_for: Number of rows of which one is compared by these rules in any case. 1: all are.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = BatchDecoder(shape)
        for batch in small_parts(batches, "_document"):
            rows = {*range(0, len(batch), own_rules_for)}
            if own_rules_for > 1:
                rows.update(_unlike_decoded(batch, decoder, groups))
            checked = _checked(shape, groups, batch.take(pa.array(sorted(rows))))
            yield pa.RecordBatch.from_pylist(list(checked), schema=CHECKED)

    return run


def counting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows with wrong and with late values: `CHECKED` → one row of `COUNTS`."""
    sums = dict.fromkeys(COUNTS.names, 0)
    for batch in batches:
        for name in sums:
            sums[name] += pc.sum(_has_paths(batch, name)).as_py() or 0
    yield pa.RecordBatch.from_pylist([sums], schema=COUNTS)


def wrong_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep the rows with wrong values: `CHECKED` → `WRONG`."""
    for batch in batches:
        rows = batch.filter(_has_paths(batch, "wrong"))
        yield rows.select([*WRONG.names[:-1], "wrong"]).rename_columns(WRONG.names)


def _has_paths(batch: pa.RecordBatch, name: str) -> pa.Array:
    return pc.greater(pc.list_value_length(batch[name]), 0)


def _unlike_decoded(batch: pa.RecordBatch, decoder: BatchDecoder, groups: Mapping[str, str | None]) -> Iterator[int]:
    """Yield the rows whose columns or rescued values are not what *decoder* makes of their documents."""
    in_table = [*(batch[name] for name in batch.schema.names if name not in COMPARED), batch["_rescued"]]
    decoded = dict(zip(decoder.schema.names, decoder.decode(batch["_document"]), strict=True))
    decoded |= {name: pa.array([value] * len(batch), pa.string()) for name, value in groups.items()}
    columns = zip(in_table, decoded.values(), decoder.schema.types, strict=True)
    pairs = [(_in_numbers(one.cast(kind)), _in_numbers(decoded)) for one, decoded, kind in columns]
    unequal = [pair for pair in pairs if not pair[0].equals(pair[1])]
    if unequal:
        names = [str(number) for number in range(len(unequal))]
        left, right = (pa.RecordBatch.from_arrays(list(side), names) for side in zip(*unequal, strict=True))
        yield from _unequal_rows(left, right, 0)


def _unequal_rows(left: pa.RecordBatch, right: pa.RecordBatch, first: int) -> Iterator[int]:
    """Yield the numbers of rows that are not equal. The first row has the number *first*."""
    if left.equals(right):
        return
    if (half := len(left) // 2) == 0:
        yield first
        return
    yield from _unequal_rows(left[:half], right[:half], first)
    yield from _unequal_rows(left[half:], right[half:], first + half)


def _checked(shape: Shape, groups: Mapping[str, str | None], batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names, of_document = [name for name, _ in shape.columns()], without_groups(shape)
    # Times as microseconds: a time zone would move the first and last ones out of Python's years.
    schema = pa.schema([(column.name, _with_numbers(column.type, pa.types.is_timestamp)) for column in batch.schema])
    for row in batch.cast(schema).to_pylist():
        document = row["_document"]
        values = dict(zip(names, (value for name, value in row.items() if name not in COMPARED), strict=True))
        wrong = [name for name, value in groups.items() if values.pop(name) != value]
        check = check_row(document, of_document, values, row["_rescued"])
        if check.wrong or check.late or wrong:
            identifier = None if document is None else id_document(document)
            columns = {"key": row["_key"], "position": row["_position"], "identifier": identifier}
            yield columns | {"wrong": [*check.wrong, *wrong], "late": list(check.late)}


def _in_numbers(values: pa.Array) -> pa.Array:
    """Return floating-point numbers as their bits. Arrow takes 0.0 and -0.0 for equal, and NaN for unequal."""
    return values.view(_with_numbers(values.type, pa.types.is_floating))


def _with_numbers(kind: pa.DataType, is_number: Callable[[pa.DataType], bool]) -> pa.DataType:
    """Return *kind* with integers in the places of the types for which *is_number* is true."""
    if pa.types.is_struct(kind):
        return pa.struct([(inner.name, _with_numbers(inner.type, is_number)) for inner in kind])
    if pa.types.is_list(kind):
        return pa.list_(_with_numbers(kind.value_type, is_number))
    return pa.int64() if is_number(kind) else kind
