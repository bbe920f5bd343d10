"""Poison: documents of a silver batch that JSON cannot represent. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.model.bson.poison import json_problem
from strandline.silver.decode.document import document_in

_DDL = "key STRING, position STRING, message STRING, raw BINARY"
_SCHEMA = pa.schema([("key", pa.string()), ("position", pa.string()), ("message", pa.string()), ("raw", pa.binary())])


def poisoned_documents(state: DataFrame) -> DataFrame:
    """Return the documents that silver can store, as a whole or in part, only as bytes.

    Args:
        state: Output of `latest_per_key` or `folded_per_key`.

    Returns:
        ``key``, ``position`` (of the document), ``message``, ``raw``. Empty if JSON can represent every document.
    """
    documents = state.where(F.col("envelope").isNotNull()).select("_key", "_base_position", "base_op", "envelope")
    return documents.mapInArrow(_find, _DDL)


def _find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        poison = []
        for row in batch.to_pylist():
            document = document_in(row["base_op"], row["envelope"])
            why = None if document is None else json_problem(document)
            if why is not None:
                poison.append({"key": row["_key"], "position": row["_base_position"], "message": why, "raw": document})
        yield pa.RecordBatch.from_pylist(poison, schema=_SCHEMA)
