"""A table's whole content in one commit, its properties included; and the end of a table that nobody needs any more."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from pipelines.io.tables import Tables
from pipelines.model.tables import TableName

_ITS_OWN = ("delta.columnMapping.maxColumnId", "delta.feature.", "delta.rowTracking.")
"""What Delta notes of the columns and files that a table has now: it means nothing for others."""


def swap(tables: Tables, table: TableName, rows: DataFrame, *, properties: Mapping[str, str], cluster_by: Sequence[str]) -> None:
    """I/O: one commit that replaces rows, columns and properties. A reader sees the old table or the new one; the old one stays in the
    table's history.

    Args:
        rows: Do not come from *table* itself.
        properties: All that the table has afterwards.
    """
    writer = rows.writeTo(tables.lake.sql(table)).using("delta").clusterBy(*cluster_by)
    for key, value in sorted(properties.items()):
        if not key.startswith(_ITS_OWN):
            writer = writer.tableProperty(key, value)
    writer.createOrReplace()


def discard(tables: Tables, table: TableName) -> None:
    """I/O: drops a table; of one in a folder of an object store only the rows, in one commit. Idempotent."""
    if not tables.exists(table):
        return
    if not tables.lake.by_path:
        tables.spark.sql(f"DROP TABLE {tables.lake.sql(table)}")
    elif ":" in (tables.lake.root or ""):
        tables.delta(table).delete()
    else:
        shutil.rmtree(Path(tables.lake.path(table)))
