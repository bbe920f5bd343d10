"""Bronze in the format of Debezium's MongoDB events, for existing consumers. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline.bronze.json_view import with_json
from strandline.bronze.transactions import transaction_block
from strandline.io.spark.arrow_functions import column_function
from strandline.model.bson import raw as rb
from strandline.model.bson.extended_json import JsonMode, strict_value
from strandline.model.table_schemas import CHANGE_OPS

VALUE: Final = ("before", "after", "updateDescription", "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction")
"""Columns of Debezium's value. Null in a tombstone."""


def debezium_events(
    rows: DataFrame,
    *,
    prefix: str,
    tombstones: bool = False,
    json_mode: JsonMode = "extended",
    replica_set: str | None = None,
) -> DataFrame:
    """Return change events in Debezium's format, one row each.

    Args:
        rows: Bronze.
        prefix: Debezium's ``topic.prefix``, the beginning of topic names.
        tombstones: After every delete, add a row with its key and a null value (``tombstones.on.delete``).
        json_mode: Extended JSON of documents (``json.serialization.mode``). The key is strict in every mode.
        replica_set: Name of the replica set, for ``source.rs``. None: a sharded cluster.

    Returns:
        ``position`` (the order; a tombstone has the position of its delete), ``topic``, ``id`` (the key), and `VALUE`.
        Control rows are left out. Empty in, empty out.
    """
    changes = with_json(rows.where(F.col("op").isin(*CHANGE_OPS)), json_mode)
    identify = column_function(_identify, "string")
    events = changes.select(
        "position",
        F.concat_ws(".", F.lit(prefix), "db", "collection").alias("topic"),
        F.coalesce(identify("op", "envelope"), "key").alias("id"),
        "before",
        "after",
        _update_description().alias("updateDescription"),
        _source(replica_set).alias("source"),
        "op",
        *_times(F.unix_micros("captured_at")),
        transaction_block().alias("transaction"),
    )
    if not tombstones:
        return events
    gone = events.where(F.col("op") == "d")
    return events.unionByName(gone.withColumns({name: F.lit(None).cast(gone.schema[name].dataType) for name in VALUE}))


def _times(micros: Column) -> list[Column]:
    """Return a time in Debezium's three units. Its precision is microseconds."""
    return [(micros / 1000).cast("BIGINT").alias("ts_ms"), micros.alias("ts_us"), (micros * 1000).alias("ts_ns")]


def _source(replica_set: str | None) -> Column:
    happened = F.coalesce(F.col("source.wall_time") * 1000, F.unix_micros("cluster_time"))
    nothing = F.lit(None).cast("BIGINT")
    return F.struct(
        F.col("source.version").alias("version"),
        F.lit("mongodb").alias("connector"),
        F.col("source.name").alias("name"),
        *_times(happened),
        F.col("source.snapshot").alias("snapshot"),
        F.col("db").alias("db"),
        F.lit(None).cast("STRING").alias("sequence"),
        F.lit(replica_set).cast("STRING").alias("rs"),
        F.col("collection").alias("collection"),
        F.col("source.ord").alias("ord"),
        nothing.alias("h"),
        nothing.alias("tord"),
        F.lit(None).cast("STRING").alias("stxnid"),
        F.col("source.lsid").alias("lsid"),
        F.col("source.txn_number").alias("txnNumber"),
        F.col("source.wall_time").alias("wallTime"),
    )


def _update_description() -> Column:
    description = F.col("update_description")
    arrays = F.transform(
        description["truncated_arrays"],
        lambda array: F.struct(array["field"].alias("field"), array["new_size"].alias("size")),
    )
    described = F.struct(
        description["removed_fields"].alias("removedFields"),
        description["updated_fields"].alias("updatedFields"),
        arrays.alias("truncatedArrays"),
    )
    return F.when(description.isNotNull(), described)


def _identify(op: pa.Array, envelope: pa.Array) -> pa.Array:
    pairs = zip(op.to_pylist(), envelope.to_pylist(), strict=True)
    return pa.array([None if raw is None else event_id(kind, raw) for kind, raw in pairs], pa.string())


def event_id(op: str, envelope: bytes) -> str | None:
    """Return the `_id` of an envelope as strict Extended JSON, as in Debezium's key. None: no `_id`, or no UTF-8."""
    key = (rb.DOCUMENT, 0, len(envelope)) if op == "r" else rb.field(envelope, b"documentKey")
    span = None if key is None else rb.field(envelope, b"_id", key[1])
    if span is None:
        return None
    kind, value, end = span
    try:
        return strict_value(kind, envelope, value, end)
    except ValueError:  # not UTF-8; `envelope` in bronze has the bytes
        return None
