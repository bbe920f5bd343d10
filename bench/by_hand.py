"""Hand-written alternative to a silver job: decode the newest change of each key into fixed columns, then MERGE."""

from __future__ import annotations

from collections.abc import Iterator

import bson
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from bench.orders import ORDERS
from strandline.io.tables.spark_tables import Tables
from strandline.model.merge_rule import MergeRule
from strandline.silver.decode.document import document_in

_FIELDS = "_id STRING, number INT, customer STRING, amount DOUBLE, revision INT, placed TIMESTAMP, note STRING"
_ARROW_FIELDS = pa.schema(
    {
        "_id": pa.string(),
        "number": pa.int32(),
        "customer": pa.string(),
        "amount": pa.float64(),
        "revision": pa.int32(),
        "placed": pa.timestamp("us", "UTC"),
        "note": pa.string(),
    }
)
_KEPT = ("key", "position", "op", "cluster_time")
_KEPT_DDL = "key STRING, position STRING, op STRING, cluster_time TIMESTAMP"


def merge_by_hand(tables: Tables, bronze: DataFrame) -> int:
    """Merge new changes into the orders table, with fixed columns and types and without stored progress.

    I/O: writes one commit.

    Args:
        bronze: New change rows of the collection.

    Returns:
        Number of updated rows.
    """
    by_key = Window.partitionBy("key").orderBy(F.col("position").desc())
    newest = bronze.withColumn("place", F.row_number().over(by_key)).where("place = 1").select(*_KEPT, "envelope")
    rows = newest.mapInArrow(_decoded, f"{_FIELDS}, {_KEPT_DDL}, _document BINARY").selectExpr(
        *_ARROW_FIELDS.names,
        "key AS _key",
        "position AS _position",
        "position AS _base_position",
        "op AS _op",
        "op = 'd' AS _deleted",
        "cluster_time AS _cluster_time",
        "_document",
    )
    rule = MergeRule(("_key",)).update(rows.columns, when="s._position > t._position").insert(rows.columns)
    return tables.merge(ORDERS, rows, rule).updated


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        raw = [
            document_in(op, envelope)
            for op, envelope in zip(batch["op"].to_pylist(), batch["envelope"].to_pylist(), strict=True)
        ]
        documents = [{} if one is None else bson.decode(one) for one in raw]
        for document in documents:
            document["_id"] = str(document.get("_id"))
        fields = pa.RecordBatch.from_pylist(documents, schema=_ARROW_FIELDS)
        columns = [*fields.columns, *(batch[name] for name in _KEPT), pa.array(raw, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=[*fields.schema.names, *_KEPT, "_document"])
