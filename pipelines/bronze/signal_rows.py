"""Processed signals: one ``signal`` row each, in the same commit as the effect of the signal."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import functions as F

from pipelines.io.tables import Tables
from pipelines.model.tables import TableName


def acted_upon(tables: Tables, bronze: TableName, keys: Collection[str]) -> set[str]:
    """I/O: the *keys* that bronze has a row for. Statistics of ``snapshot_id`` skip nearly every file."""
    if not keys:
        return set()
    rows = tables.read(bronze).where(F.col("snapshot_id").isin(*keys) & (F.col("op") == "signal"))
    return {row["snapshot_id"] for row in rows.select("snapshot_id").distinct().collect()}
