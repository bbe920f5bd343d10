"""Transactions as bronze holds them: which events belong together, in which order, where each begins and ends. Pure.

Nothing is written for them at capture. Session and number (`lsid`, `txnNumber`) stand on every event of a transaction, so the answer is the
same however batches, restarts and replays have cut it, and it is there for transactions that were captured before anybody asked.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.model.columns import CHANGE_OPS

_SESSION: Final = "$['id']['$binary']['base64']"


def with_transaction(rows: DataFrame) -> DataFrame:
    """Add ``transaction`` (Debezium's block: id, total_order, data_collection_order, both from 1); null for an event outside of any.

    Args:
        rows: Bronze, or some of its collections: what is left out is not counted.

    Returns:
        The same rows. One that was captured again (a replay) has the order it had.
    """
    within = Window.partitionBy("_transaction").orderBy("position")
    within_collection = Window.partitionBy("_transaction", "db", "collection").orderBy("position")
    orders = F.dense_rank().over(within).cast("BIGINT"), F.dense_rank().over(within_collection).cast("BIGINT")
    block = F.struct(F.col("_transaction").alias("id"), orders[0].alias("total_order"), orders[1].alias("data_collection_order"))
    named = rows.withColumn("_transaction", _id())
    return named.withColumn("transaction", F.when(F.col("_transaction").isNotNull(), block)).drop("_transaction")


def transactions(rows: DataFrame) -> DataFrame:
    """Two rows for each transaction, as Debezium's transaction topic has them; its END only once something later has been captured.

    Args:
        rows: Bronze.

    Returns:
        ``status`` (BEGIN, END), ``id``, ``position`` and ``cluster_time`` of its first or last event; of an END also ``event_count`` and
        ``data_collections`` (name and count of each, by name).
    """
    events = rows.select(_id().alias("id"), "db", "collection", "position", "cluster_time").where(F.col("id").isNotNull()).distinct()
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
    begin = whole.select(F.lit("BEGIN").alias("status"), "id", "first.*", *_unknown(whole, "event_count", "data_collections"))
    end = ended.select(F.lit("END").alias("status"), "id", "last.*", "event_count", "data_collections")
    return begin.unionByName(end)


def _id() -> Column:
    """``<session>:<number>`` of a change that was part of a transaction."""
    session = F.lower(F.hex(F.unbase64(F.get_json_object("source.lsid", _SESSION))))
    inside = F.col("op").isin(*CHANGE_OPS) & F.col("source.txn_number").isNotNull()
    return F.when(inside, F.concat_ws(":", session, F.col("source.txn_number").cast("STRING")))


def _token() -> Column:
    """How far the stream was captured, as far as a row tells: the token that ends a batch, or the row's own."""
    own = F.when(F.col("batch").isNotNull(), F.substring_index("position", ":", -1))
    return F.greatest(F.get_json_object("resume_token", "$._data"), own)


def _unknown(rows: DataFrame, *names: str) -> list[Column]:
    return [F.lit(None).cast(rows.schema[name].dataType).alias(name) for name in names]
