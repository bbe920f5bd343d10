"""Typed rows of a silver table. Python on the executors decodes the documents. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.io.spark import column_functions as F
from strandline.model.shape import Compatibility, Shape
from strandline.model.tables import quoted
from strandline.model.tenants import group_values
from strandline.silver.decode.batch_decoder import BatchDecoder
from strandline.silver.decode.batch_documents import documents_in, small_parts
from strandline.silver.latest import NEWEST, NEWEST_DDL, PENDING_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_STATE = (*NEWEST, "_base_position", "_inexact_because")
_STATE_DDL = f"{NEWEST_DDL}, _base_position STRING, _inexact_because STRING"


def typed_rows(state: DataFrame, shape: Shape, compatibility: Compatibility) -> DataFrame:
    """Decode each row's document into *shape*'s columns.

    Args:
        state: Output of `latest_per_key` or `folded_per_key`.
        shape: Shape of the silver table.
        compatibility: Compatibility of the silver table.

    Returns:
        One row per row of *state*: the shape's columns, then the bookkeeping columns.
    """
    waits = "_pending" in state.columns
    keeping, ddl = ((*_STATE, "_pending"), f"{_STATE_DDL}, _pending {PENDING_TYPE}") if waits else (_STATE, _STATE_DDL)
    rows = decoded_rows(state, shape, compatibility, keeping=keeping, keeping_ddl=ddl)
    is_exact = F.when(F.col("_inexact_because").isNotNull(), F.lit(False)).when(
        F.col("_document").isNotNull(), F.lit(True)
    )
    rows = rows.withColumn("_exact", is_exact)
    return rows if waits else rows.withColumn("_pending", F.lit(None).cast(PENDING_TYPE))


def decoded_rows(
    rows: DataFrame,
    shape: Shape,
    compatibility: Compatibility,
    *,
    keeping: Sequence[str],
    keeping_ddl: str,
    keeps_unknown: bool = False,
) -> DataFrame:
    """Decode the document of each row (``base_op``, ``envelope``) into *shape*'s columns.

    Args:
        compatibility: ``native``: ``_rescued`` is VARIANT. ``portable``: it is JSON text.
        keeping: Columns that are passed through.
        keeping_ddl: Names and types of the columns in *keeping*.
        keeps_unknown: True if fields without a column need no rescue.

    Returns:
        One row per row of *rows*: the shape's columns, the columns in *keeping*, then ``_rescued`` and ``_document``.
    """
    columns = "".join(f"{quoted(name)} {inner.arrow_type()}, " for name, inner in shape.columns())
    decode = decoding(shape, keeping, keeps_unknown=keeps_unknown)
    decoded = rows.mapInArrow(decode, f"{columns}{keeping_ddl}, _rescued STRING, _document BINARY")
    names = [name for name, _ in shape.columns()]
    typed = [with_variants(F.col(quoted(name)), shape.fields[name], F.parse_json).alias(name) for name in names]
    rescued = F.parse_json("_rescued").alias("_rescued") if compatibility == "native" else "_rescued"
    return decoded.select(*typed, *keeping, rescued, "_document")


def decoding(shape: Shape, keeping: Sequence[str], *, keeps_unknown: bool = False) -> Batches:
    """Return the function that decodes batches of rows: see `decoded_rows`. VARIANTs are still JSON texts."""
    keeping = tuple(keeping)

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = BatchDecoder(shape, keeps_unknown=keeps_unknown)
        names = [name for name, _ in shape.columns()]
        groups = {number: inner.pattern for number, (_, inner) in enumerate(shape.columns()) if inner.pattern}
        for batch in small_parts(batches, "envelope"):
            documents = documents_in(batch["base_op"], batch["envelope"])
            *columns, rescued = decoder.decode(documents)
            for number, pattern in groups.items():
                columns[number] = pa.array(group_values(pattern, names[number], batch["_key"].to_pylist()), pa.string())
            arrays = [*columns, *(batch[name] for name in keeping), rescued, documents]
            yield pa.RecordBatch.from_arrays(arrays, names=[*names, *keeping, "_rescued", "_document"])

    return decode


def with_variants(column: Column, shape: Shape, convert: Callable[[Column], Column]) -> Column:
    """Return *column* converted at every place where the shape has a VARIANT: `parse_json` or `to_json`."""
    if not shape.holds_variant:
        return column
    if shape.is_variant:
        return convert(column)
    if shape.kind == "array":
        assert shape.element is not None  # holds_variant
        element = shape.element
        return F.transform(column, lambda item: with_variants(item, element, convert))
    holding = [(name, inner) for name, inner in shape.columns() if inner.holds_variant]
    return reduce(
        lambda struct, named: struct.withField(quoted(named[0]), with_variants(column[named[0]], named[1], convert)),
        holding,
        column,
    )
