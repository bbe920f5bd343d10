"""Transactions in bronze: their events, the order of these, begin and end. Pure.

Capture writes nothing for them. Every event of a transaction carries session and number (`lsid`, `txnNumber`). So the
result does not depend on batches, restarts and replays, and covers everything that was ever captured.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from strandline.model.table_schemas import CHANGE_OPS

_SESSION: Final = "$['id']['$binary']['base64']"


def transaction_block() -> Column:
    """Return Debezium's ``transaction``: id, total_order, data_collection_order, from 1. Null outside a transaction.

    Only queries that read this column pay for its sort. Rows that are filtered away before are not counted. A repeated
    event has the same place as before.
    """
    identifier = transaction_id()
    alone = F.when(
        identifier.isNull(), F.struct("position", "key")
    )  # otherwise all events outside transactions would be one window
    whole = Window.partitionBy(identifier, alone).orderBy("position")
    in_collection = Window.partitionBy(identifier, alone, "db", "collection").orderBy("position")
    place = F.struct(
        identifier.alias("id"),
        F.dense_rank().over(whole).cast("BIGINT").alias("total_order"),
        F.dense_rank().over(in_collection).cast("BIGINT").alias("data_collection_order"),
    )
    return F.when(identifier.isNotNull(), place)


def transactions(rows: DataFrame) -> DataFrame:
    """Return BEGIN and END of each transaction, as in Debezium's transaction topic. END needs a later captured event.

    Args:
        rows: Bronze.

    Returns:
        ``status`` (BEGIN, END), ``id``, ``position`` and ``cluster_time`` of its first or last event. END also has
        ``event_count`` and ``data_collections`` (name and count of each, by name).
    """
    events = (
        rows.select(transaction_id().alias("id"), "db", "collection", "position", "cluster_time")
        .where(F.col("id").isNotNull())
        .distinct()
    )
    by_collection = events.groupBy("id", F.concat_ws(".", "db", "collection").alias("data_collection")).agg(
        F.count("*").alias("event_count"),
        F.min(F.struct("position", "cluster_time")).alias("first"),
        F.max(F.struct("position", "cluster_time")).alias("last"),
    )
    whole = by_collection.groupBy("id").agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum("event_count").alias("event_count"),
        F.array_sort(F.collect_list(F.struct("data_collection", "event_count"))).alias("data_collections"),
    )
    ended = whole.crossJoin(rows.agg(F.max(_token()).alias("reached"))).where(
        F.substring_index("last.position", ":", -1) < F.col("reached")
    )
    begin = whole.select(
        F.lit("BEGIN").alias("status"), "id", "first.*", *_unknown(whole, "event_count", "data_collections")
    )
    end = ended.select(F.lit("END").alias("status"), "id", "last.*", "event_count", "data_collections")
    return begin.unionByName(end)


def transaction_id() -> Column:
    """Return ``<session>:<number>`` of a change in a transaction."""
    session = F.coalesce(F.lower(F.hex(F.unbase64(F.get_json_object("source.lsid", _SESSION)))), F.col("source.lsid"))
    inside = F.col("op").isin(*CHANGE_OPS) & F.col("source.txn_number").isNotNull()
    return F.when(inside, F.concat_ws(":", session, F.col("source.txn_number").cast("STRING")))


def _token() -> Column:
    """Return the stream position that a row proves: the token that ends a batch, or its own."""
    own = F.when(F.col("batch").isNotNull(), F.substring_index("position", ":", -1))
    return F.greatest(F.get_json_object("resume_token", "$._data"), own)


def _unknown(rows: DataFrame, *names: str) -> list[Column]:
    return [F.lit(None).cast(rows.schema[name].dataType).alias(name) for name in names]
