"""Documents decoded together and one by one, as the same rows of Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from strandline.model.shape import Shape
from strandline.silver.decode.batch_decoder import BatchDecoder
from strandline.silver.decode.decoder import Decoder

Columns = list[list[Any]]
"""Values of each column of the shape, and then the rescued values of each document."""


def decoded_alone(shape: Shape, documents: Sequence[bytes | None]) -> Columns:
    decoder = Decoder(shape)
    nothing: tuple[list[Any], str | None] = [None] * len(decoder.names), None
    decoded = [nothing if document is None else decoder.decode(document) for document in documents]
    rows = [[*values, rescued] for values, rescued in decoded]
    fields = enumerate(BatchDecoder(shape).schema)
    # By way of Arrow, because a missing field of a document inside is a null there.
    return [pa.array([row[at] for row in rows], field.type).to_pylist() for at, field in fields]


def decoded_together(shape: Shape, documents: Sequence[bytes | None]) -> Columns:
    decoder = BatchDecoder(shape)
    columns = decoder.decode(pa.array(documents, pa.binary()))
    for column, field in zip(columns, decoder.schema, strict=True):
        column.validate(full=True)
        assert column.type == field.type
    return [column.to_pylist() for column in columns]
