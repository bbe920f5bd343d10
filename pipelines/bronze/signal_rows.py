"""Which signals were acted upon: a ``signal`` row for each, in the commit of what was done."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import functions as F

from pipelines.io.tables import Tables
from pipelines.model.tables import TableName


def acted_upon(tables: Tables, bronze: TableName, keys: Collection[str]) -> set[str]:
    """I/O: those of *keys* that bronze has a row of; the statistics of ``snapshot_id`` leave nearly every file out."""
    if not keys:
        return set()
    rows = tables.read(bronze).where(F.col("snapshot_id").isin(*keys) & (F.col("op") == "signal"))
    return {row["snapshot_id"] for row in rows.select("snapshot_id").distinct().collect()}
