"""Decode the documents of a batch together into Arrow columns. Pure; runs on the executors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch
from strandline.model.bson.columnar.tree import Documents
from strandline.model.shape import Shape
from strandline.silver.decode.columns import ColumnReader, assembled
from strandline.silver.decode.decoder import Decoder
from strandline.silver.decode.numpy_scalars import arrow_type
from strandline.silver.decode.scalars import variant_text


class BatchDecoder:
    """Decode documents into the columns of one shape, as `Decoder` does with one document at a time.

    Args:
        shape: Root of the table. Columns are returned in its order.
        keeps_unknown: True if fields without a column need no rescue.
    """

    def __init__(self, shape: Shape, *, keeps_unknown: bool = False) -> None:
        self._decoder = Decoder(shape, keeps_unknown=keeps_unknown)
        self._whole = next((at for at, (_, inner) in enumerate(shape.columns()) if inner.is_whole), None)
        self._keeps_unknown = keeps_unknown or self._whole is not None
        self._others = replace(shape, fields={name: one for name, one in shape.fields.items() if not one.is_whole})
        self.schema = pa.schema(
            [*((name, arrow_type(inner)) for name, inner in shape.columns()), ("_rescued", pa.string())]
        )

    def decode(self, documents: pa.Array) -> list[pa.Array]:
        """Return the columns of `schema`: the columns of the shape, and ``_rescued``, as `Decoder.decode` gives them.

        A missing document (null) gives nulls.

        Raises:
            MalformedBson: A document is damaged.
        """
        rows = np.flatnonzero(documents.is_valid())
        batch = BsonBatch(documents.drop_null())
        parts = [(rows, self._together(batch))]
        if batch.has_left.any():
            parts.append((rows[batch.has_left], self._one_by_one(batch)))
        return [
            assembled([(rows, columns[at]) for rows, columns in parts], field.type, len(documents))
            for at, field in enumerate(self.schema)
        ]

    def _together(self, batch: BsonBatch) -> list[pa.Array]:
        """Decode all documents. The values of those that leave the batch mean nothing."""
        reader = ColumnReader(batch)
        columns = reader.struct(Documents.of(batch), self._others, keeps_unknown=self._keeps_unknown)
        if self._whole is not None:
            spans = zip(batch.starts.tolist(), batch.ends.tolist(), strict=True)
            texts = [variant_text(batch.raw, rb.DOCUMENT, start, end) for start, end in spans]
            columns.insert(self._whole, pa.array(texts, pa.string()))
        return [*columns, reader.rescued()]

    def _one_by_one(self, batch: BsonBatch) -> list[pa.Array]:
        """Decode the documents that left the batch."""
        decoded = [self._decoder.decode(document) for document in batch.left()]
        columns = zip(*((*values, rescued) for values, rescued in decoded), strict=True)
        return [pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
