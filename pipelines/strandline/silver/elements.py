"""Elements of arrays as rows: the rows of a child table, from rows of its parent. Pure.

Both engines explode alike: Arrow in this process, and Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.io.spark import column_functions as F
from strandline.model.child_table import GONE, OCCURRENCE, OF_PARENT, ORDINAL, OUTER_ORDINAL, Elements
from strandline.model.shape import Shape
from strandline.model.tables import quoted, quoted_path
from strandline.silver.decode.numpy_scalars import arrow_type
from strandline.silver.decode.rows import decoded_rows, decoding
from strandline.silver.same_values import same_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ELEMENT: Final = "element"
_OUTER: Final = "outer"
_KEEPING: Final = ("_key", *OF_PARENT)
_BEGINS: Final = "_strandline_begins"
_VERSION: Final = "_strandline_version"


def exploded(rows: pa.Table, elements: Elements) -> pa.Table:
    """Return a row for each element of the arrays of *rows*, with the columns of the child table.

    Args:
        rows: Rows of the parent: `Elements.of_parent`.
    """
    if elements.in_documents is not None:
        rows = _read_from_documents(rows, elements.in_documents)
    first, *inner = elements.path[: len(elements.outer) or None]
    parents, values, places = _elements(rows[first], inner)
    columns: dict[str, Any] = {}
    if elements.outer:
        holders, values, inner_places = _elements(values, elements.path[len(elements.outer) :])
        columns[OUTER_ORDINAL], parents, places = places.take(holders), parents.take(holders), inner_places
    columns |= {ORDINAL: places} | {name: rows[name].take(parents) for name in ("_key", *OF_PARENT)}
    for column, field in elements.fields.items():
        columns[column] = values if field is None else pc.struct_field(values, [field])
    if elements.key is not None:
        outer = [columns[OUTER_ORDINAL]] if elements.outer else []
        columns[OCCURRENCE] = pa.array(_places(_codes([parents, *outer, columns[elements.key]])), pa.int32())
    return pa.table({name: columns[name] for name in elements.columns})


def _read_from_documents(rows: pa.Table, shape: Shape) -> pa.Table:
    """Return *rows* with the columns of *shape*, read from their documents."""
    own = {name: rows[name] for name in _KEEPING}
    documents = pa.table(
        {**own, "base_op": pa.array(["r"] * rows.num_rows, pa.string()), "envelope": rows["_document"]}
    )
    decode = decoding(shape, _KEEPING, keeps_unknown=True)
    if batches := list(decode(iter(documents.combine_chunks().to_batches()))):
        return pa.Table.from_batches(batches)
    return pa.table({**own, **{name: pa.nulls(0, arrow_type(inner)) for name, inner in shape.columns()}})


def _elements(column: pa.Array | pa.ChunkedArray, path: Sequence[str]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return row, value and place of each element of the arrays at *path* in a column. Empty: the column itself."""
    arrays = pc.struct_field(column, path) if path else column
    arrays = arrays.combine_chunks() if isinstance(arrays, pa.ChunkedArray) else arrays
    parents = pc.list_parent_indices(arrays)
    places = pa.array(_places(parents.to_numpy(zero_copy_only=False)), pa.int32())
    return parents, pc.list_flatten(arrays), places


def merge_source(rows: pa.Table, earlier: pa.Table, elements: Elements) -> pa.Table:
    """Return the source of the MERGE: *rows* that are new or changed, and *earlier* ones that are gone, marked so.

    delta-rs takes ten times as long for a row that it finds and leaves as it is, as for one that it writes.

    Args:
        rows: All elements that some parents have now.
        earlier: All elements that the table has of these parents.
    """
    identities = [one.select(elements.identity) for one in (earlier, rows)]
    codes = _codes(pa.concat_tables(identities).columns)
    before, now = codes[: earlier.num_rows], codes[earlier.num_rows :]
    gone = earlier.filter(pa.array(~np.isin(before, now)))
    order = np.argsort(before, kind="stable")
    places = np.searchsorted(before, now, sorter=order)
    both = np.flatnonzero(np.isin(now, before))
    others, same = earlier.take(pa.array(order[places[both]])), rows.take(pa.array(both))
    is_same = [same_values(same[name], others[name]) for name in elements.compared]
    rows = rows.filter(pa.array(~np.isin(np.arange(len(now)), both[np.logical_and.reduce(is_same)])))
    nulls = {field.name: pa.nulls(gone.num_rows, field.type) for field in rows.schema}
    whole = pa.table({name: gone[name] if name in elements.identity else nulls[name] for name in rows.schema.names})
    return pa.concat_tables([_marked(rows, is_gone=False), _marked(whole, is_gone=True)])


def _marked(rows: pa.Table, *, is_gone: bool) -> pa.Table:
    return rows.append_column(GONE, pa.array([is_gone] * rows.num_rows, pa.bool_()))


def _codes(columns: Sequence[pa.Array | pa.ChunkedArray]) -> NDArray[np.int64]:
    """Return a number for each row: the same for rows with the same values. Null is a value."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = pa.chunked_array(column.chunks if isinstance(column, pa.ChunkedArray) else [column], column.type)
        values = encoded.combine_chunks().dictionary_encode(null_encoding="encode")
        _, codes = np.unique(codes * (len(values.dictionary) + 1) + values.indices.to_numpy(), return_inverse=True)
    return codes


def _places(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row the number of earlier rows with the same code."""
    order = np.argsort(codes, kind="stable")
    ordered, places = codes[order], np.empty(len(codes), np.int64)
    places[order] = np.arange(len(codes)) - np.searchsorted(ordered, ordered, "left")
    return places


def exploded_frame(rows: DataFrame, elements: Elements) -> DataFrame:
    """Return what `exploded` returns, by Spark. Of versions of the parent: the versions of its elements."""
    from pyspark.sql import Window

    carried, path = elements.carried, elements.path
    if elements.in_documents is not None:
        rows = _with_array(rows.select("_key", *carried, "_document"), elements.in_documents)
    if elements.outer:
        path = (_OUTER, *path[len(elements.outer) :])
        rows = rows.select("_key", *carried, F.posexplode(quoted_path(elements.outer)).alias(OUTER_ORDINAL, _OUTER))
    placed = rows.select(*elements.array, *carried, F.posexplode(quoted_path(path)).alias(ORDINAL, _ELEMENT))
    named = {
        column: F.col(_ELEMENT if field is None else quoted_path((_ELEMENT, field))).alias(column)
        for column, field in elements.fields.items()
    }
    frame = placed.select(*elements.array, ORDINAL, *carried, *named.values())
    if elements.key is not None:
        of_array = (*elements.array, *(("_position",) if elements.are_versions else ()))
        window = Window.partitionBy(*of_array, quoted(elements.key)).orderBy(ORDINAL)
        frame = frame.withColumn(OCCURRENCE, F.row_number().over(window) - 1)
    frame = frame.select(*map(quoted, elements.columns))
    return _joined_versions(frame, elements) if elements.are_versions else frame


def _with_array(rows: DataFrame, shape: Shape) -> DataFrame:
    """Return *rows* with the columns of *shape*, read from their documents."""
    own = [field for field in rows.schema if field.name != "_document"]
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in own)
    documents = rows.withColumn("base_op", F.lit("r")).withColumnRenamed("_document", "envelope")
    names = [field.name for field in own]
    return decoded_rows(documents, shape, "portable", keeping=names, keeping_ddl=ddl, keeps_unknown=True)


def _joined_versions(rows: DataFrame, elements: Elements) -> DataFrame:
    """Join versions of an element that follow each other with the same values. VARIANT cannot be compared."""
    if elements.holds_variant:
        return rows
    from pyspark.sql import Window

    in_order = Window.partitionBy(*map(quoted, elements.of_element)).orderBy("_position")
    values = F.struct(*map(quoted, elements.values))
    is_same = F.lag(values).over(in_order).eqNullSafe(values) & (
        F.lag("_valid_to_position").over(in_order) == F.col("_position")
    )
    numbered = rows.withColumn(_BEGINS, ~F.coalesce(is_same, F.lit(False)))
    begun = F.sum(F.col(_BEGINS).cast("int"))
    numbered = numbered.withColumn(_VERSION, begun.over(in_order.rowsBetween(Window.unboundedPreceding, 0)))
    whole = Window.partitionBy(*map(quoted, elements.of_element), _VERSION).orderBy("_position")
    whole = whole.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    for name in ("_valid_to_position", "_valid_to"):
        numbered = numbered.withColumn(name, F.last(name).over(whole))
    return numbered.where(_BEGINS).drop(_BEGINS, _VERSION)


def with_gone_frame(rows: DataFrame, earlier: DataFrame, elements: Elements) -> DataFrame:
    """Return all elements of some parents, and *earlier* ones that are not among them, marked as gone. By Spark."""
    identity = [F.col(f"now.{quoted(name)}").eqNullSafe(F.col(f"earlier.{quoted(name)}")) for name in elements.identity]
    condition = identity[0]
    for one in identity[1:]:
        condition &= one
    gone = earlier.alias("earlier").join(rows.alias("now"), condition, "left_anti")
    gone = gone.select(*map(quoted, elements.identity)).withColumn(GONE, F.lit(True))
    return rows.withColumn(GONE, F.lit(False)).unionByName(gone, allowMissingColumns=True)
