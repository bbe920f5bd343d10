"""What a team writes in a notebook instead of a silver job: the newest change of each key, decoded into columns that are
known, and MERGEd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bson
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from bench.orders import ORDERS
from pipelines.io.tables import Tables
from pipelines.silver.document import document_in

_FIELDS = "_id STRING, number INT, customer STRING, amount DOUBLE, revision INT, placed TIMESTAMP, note STRING"
_KEPT = ("key", "position", "op", "cluster_time")
_KEPT_DDL = "key STRING, position STRING, op STRING, cluster_time TIMESTAMP"


def merge_by_hand(tables: Tables, bronze: DataFrame) -> None:
    """I/O: one commit to the orders of *tables*. Knows their columns, trusts their types, and keeps no progress.

    Args:
        bronze: What is new: rows of the collection, changes alone.
    """
    by_key = Window.partitionBy("key").orderBy(F.col("position").desc())
    newest = bronze.withColumn("place", F.row_number().over(by_key)).where("place = 1").select(*_KEPT, "envelope")
    rows = newest.mapInArrow(_decoded, f"{_FIELDS}, {_KEPT_DDL}, _document BINARY").selectExpr(
        *(column.split()[0] for column in _FIELDS.split(", ")),
        "key AS _key",
        "position AS _position",
        "position AS _base_position",
        "op AS _op",
        "op = 'd' AS _deleted",
        "cluster_time AS _cluster_time",
        "_document",
    )
    columns = {name: f"s.{name}" for name in rows.columns}
    merge = tables.merge(ORDERS, rows, "t._key = s._key").update(columns, when="s._position > t._position")
    merge.insert(columns).execute()


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        raw = [document_in(op, envelope) for op, envelope in zip(batch["op"].to_pylist(), batch["envelope"].to_pylist(), strict=True)]
        documents: list[dict[str, Any]] = [{} if one is None else bson.decode(one) for one in raw]
        fields = {
            "_id": pa.array([str(one.get("_id")) for one in documents]),
            "number": pa.array([one.get("number") for one in documents], pa.int32()),
            "customer": pa.array([one.get("customer") for one in documents], pa.string()),
            "amount": pa.array([one.get("amount") for one in documents], pa.float64()),
            "revision": pa.array([one.get("revision") for one in documents], pa.int32()),
            "placed": pa.array([one.get("placed") for one in documents], pa.timestamp("us", "UTC")),
            "note": pa.array([one.get("note") for one in documents], pa.string()),
        }
        yield pa.RecordBatch.from_pydict(fields | {name: batch[name] for name in _KEPT} | {"_document": pa.array(raw, pa.binary())})
