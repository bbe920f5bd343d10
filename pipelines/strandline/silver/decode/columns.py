"""Arrow columns of a shape, read from the tree of a batch. Values that do not fit are rescued by path. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch, Flags, Ints
from strandline.model.bson.columnar.tree import Documents, Node, Values
from strandline.model.shape import Shape
from strandline.silver.decode.decoder import Rescued, rescue
from strandline.silver.decode.numpy_scalars import arrow_type, reader_of

Part = tuple[Ints, pa.Array]
"""Some rows of a column, and their items."""


class ColumnReader:
    """Reads columns, and collects the values that do not fit."""

    def __init__(self, batch: BsonBatch) -> None:
        self._batch, self._misfits = batch, list[tuple[Values, Ints]]()

    def struct(self, documents: Documents, shape: Shape, *, keeps_unknown: bool = False) -> list[pa.Array]:
        """Return the columns of *shape*.

        Args:
            keeps_unknown: True if fields without a column need no rescue, because another column holds the whole
                document.
        """
        left = dict(documents.fields)
        typed = [(name, inner) for name, inner in shape.fields.items() if inner.has_column]
        columns = [(left.pop(shape.field_name_of(name), {}), inner) for name, inner in typed]
        if not keeps_unknown:
            for node in left.values():
                for values in node.values():
                    self._rescue(values)
        arrays = []
        for node, inner in columns:
            if inner.is_kept:
                arrays.append(self._column(node, inner, len(documents)))
            else:
                self._column(node, inner.whole(), len(documents))  # for the values that do not fit
        return arrays

    def rescued(self) -> pa.Array:
        """Return the values that did not fit, as JSON for each document. Null: all values fit."""
        misfits = [
            (root, start, values, place)
            for values, places in self._misfits
            for root, start, place in zip(
                values.roots[places].tolist(), values.starts[places].tolist(), places.tolist(), strict=True
            )
        ]
        by_row: dict[int, Rescued] = {}
        for root, start, values, place in sorted(misfits, key=itemgetter(0, 1)):  # in the order of a walk
            own = by_row.setdefault(root, {})
            rescue(own, values.path(place), self._batch.raw, values.kind, start, int(values.ends[place]))
        if not by_row:
            return pa.nulls(len(self._batch), pa.string())
        texts = {row: json.dumps(rescued) for row, rescued in by_row.items()}
        return pa.array([texts.get(row) for row in range(len(self._batch))], pa.string())

    def _column(self, node: Node, shape: Shape, count: int) -> pa.Array:
        parts = []
        for values in node.values():
            array = None if values.kind == rb.NULL else self._read(values, shape)
            if array is not None:
                parts.append((values.rows, array))
            else:
                self._rescue(values)
        return assembled(parts, arrow_type(shape), count)

    def _read(self, values: Values, shape: Shape) -> pa.Array | None:
        """Return one item for each value. None: values of this type do not fit."""
        if shape.kind == "struct" and values.kind == rb.DOCUMENT:
            return pa.StructArray.from_arrays(self.struct(values.documents, shape), fields=list(arrow_type(shape)))
        if shape.kind == "array" and values.kind == rb.ARRAY:
            assert shape.element is not None  # has_column
            offsets = values.arrays.offsets
            elements = self._column(values.arrays.elements, shape.element, int(offsets[-1]))
            return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), elements)
        reader = reader_of(shape, values.kind)
        if reader is None:
            return None
        array, is_wrong = reader(values, shape)
        if is_wrong is None or not is_wrong.any():
            return array
        self._rescue(values, is_wrong)
        return array.take(pa.array(np.arange(len(values)), mask=is_wrong))

    def _rescue(self, values: Values, is_wrong: Flags | None = None) -> None:
        if values.kind != rb.NULL:
            self._misfits.append((values, np.arange(len(values)) if is_wrong is None else np.flatnonzero(is_wrong)))


def assembled(parts: Sequence[Part], kind: pa.DataType, count: int) -> pa.Array:
    """Return a column of *count* rows. A row of several parts has the item of the last, a row of none is null."""
    if not parts:
        return pa.nulls(count, kind)
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]  # each row once, in order
    places, first = np.full(count, -1), 0
    for rows, items in parts:
        places[rows] = np.arange(first, first + len(items))
        first += len(items)
    items = parts[0][1] if len(parts) == 1 else pa.concat_arrays([items for _, items in parts])
    return items.take(pa.array(places, mask=places < 0))
