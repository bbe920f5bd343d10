"""Read control rows of a snapshot from bronze."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.io.tables import Tables
from pipelines.model.tables import TableName


def manifest_row(tables: Tables, bronze: TableName, snapshot_id: str, chunk: int, words: Collection[str]) -> Row | None:
    """I/O: control row of a chunk (-1: of the snapshot) with one of *words* as ``operation_type``. None: missing."""
    rows = tables.read(bronze).where(
        (F.col("snapshot_id") == snapshot_id) & (F.col("op") == "snapshot") & (F.col("chunk") == chunk)
    )
    return rows.where(F.col("operation_type").isin(*words)).select("operation_type", "after").first()
