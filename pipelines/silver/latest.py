"""Collapse changes to one state for each key. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import ContractError
from pipelines.model.columns import CHANGE_OPS

READS: Final = ("key", "position", "op", "cluster_time", "document_size", "envelope", "_commit_version")

NEWEST: Final = ("_key", "_position", "_op", "_deleted", "_cluster_time", "_bronze_version")
"""What a key's newest change tells; Python on the executors passes it through."""
NEWEST_DDL: Final = "_key STRING, _position STRING, _op STRING, _deleted BOOLEAN, _cluster_time TIMESTAMP, _bronze_version BIGINT"
PENDING_TYPE: Final = "ARRAY<STRUCT<position: STRING, patch: BINARY>>"


def latest_per_key(changes: DataFrame) -> DataFrame:
    """Keep, for every key, its newest change and the newest document that came with any of its changes.

    The two may differ: a delete carries no document, and an update's lookup may come back null when the document is already gone.
    Both are the largest of their kind, so the result is the same for any order, any batching and any duplication of rows.

    Args:
        changes: Bronze rows of one collection, control rows included; reads `READS`.

    Returns:
        At most one row per key: ``_key``, ``_position``, ``_op``, ``_deleted``, ``_cluster_time``, ``_bronze_version`` of the newest
        change; ``_base_position``, ``base_op`` and ``envelope`` of the newest document, null where none came. Empty in, empty out.

    Raises:
        ContractError: A column is missing (checked on the schema, before any job runs).

    Source:
        Delta MERGE needs unique source keys: delta-io/delta#180.
    """
    missing = [column for column in READS if column not in changes.columns]
    if missing:
        raise ContractError(f"bronze rows lack {', '.join(missing)}", next_step="strandline doctor")
    has_document = F.col("document_size").isNotNull()
    newest = F.max(F.struct("position", "op", "cluster_time", "_commit_version")).alias("newest")
    # max_by, not max: comparing rows would compare whole envelopes.
    base_position = F.max(F.when(has_document, F.col("position"))).alias("_base_position")
    base = F.max_by(F.struct("op", "envelope"), F.when(has_document, F.col("position"))).alias("base")
    return (
        changes.where(F.col("op").isin(*CHANGE_OPS))
        .groupBy(F.col("key").alias("_key"))
        .agg(newest, base_position, base)
        .select(
            "_key",
            F.col("newest.position").alias("_position"),
            F.col("newest.op").alias("_op"),
            (F.col("newest.op") == "d").alias("_deleted"),
            F.col("newest.cluster_time").alias("_cluster_time"),
            F.col("newest._commit_version").alias("_bronze_version"),
            "_base_position",
            F.when(F.col("_base_position").isNotNull(), F.col("base.op")).alias("base_op"),
            F.when(F.col("_base_position").isNotNull(), F.col("base.envelope")).alias("envelope"),
        )
    )


def without_deleted_values(state: DataFrame) -> DataFrame:
    """``deletes: hard``: a tombstone keeps its position and nothing of the document."""
    keep = ~F.col("_deleted")
    values = [name for name in ("_base_position", "base_op", "envelope", "_pending") if name in state.columns]
    cleared: dict[str, Column] = {name: F.when(keep, F.col(name)) for name in values}
    return state.withColumns(cleared)
