"""`Tables` with their sizes, for the page, where only Spark can read the lake."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from strandline.io.delta_log.log_activity import MAX_COMMITS, MINUTES, Appended, per_minute
from strandline.io.tables.measured_tables import TableSize
from strandline.io.tables.spark_tables import Tables
from strandline.model.tables import TableName


@dataclass(frozen=True)
class MeasuredSparkTables(Tables):
    """`Tables` that also tells how large and how busy a table is."""

    def can_query(self, table: TableName) -> bool:  # noqa: ARG002  # why: Spark can query every table
        return True

    def size(self, table: TableName) -> TableSize:
        """Return the size of *table*. I/O: a few Spark jobs that read its log."""
        newest = self.spark.sql(f"DESCRIBE HISTORY {self.lake.sql(table)} LIMIT 1")
        ((version, changed_at),) = newest.selectExpr("version", "unix_millis(timestamp)").collect()
        detail = self.detail(table)
        return TableSize(
            rows=self.read(table).count(),  # Delta answers from the log
            files=detail["numFiles"],
            bytes=detail["sizeInBytes"],
            version=version,
            checkpoint=None,
            changed_at=datetime.fromtimestamp(changed_at / 1000, UTC),
        )

    def added_per_minute(self, table: TableName) -> list[int]:
        """Return the rows that *table* got in each of the last minutes, oldest first. I/O: a Spark job.

        No rows: there is no such table.
        """
        if not self.exists(table):
            return per_minute((), time.time())
        rows = (
            self.spark.sql(f"DESCRIBE HISTORY {self.lake.sql(table)} LIMIT {MAX_COMMITS}")
            .where(f"operation = 'WRITE' AND timestamp > current_timestamp() - INTERVAL {MINUTES} MINUTES")
            .selectExpr("version", "unix_millis(timestamp) AS ms", "operationMetrics['numOutputRows'] AS rows")
            .collect()
        )
        appended = [Appended(row["version"], row["ms"] / 1000, int(row["rows"] or 0)) for row in rows]
        return per_minute(appended, time.time())
