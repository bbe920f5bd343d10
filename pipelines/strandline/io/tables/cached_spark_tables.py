"""`Tables` for a process that looks at them again and again: Spark reads nothing twice from one version."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from pyspark.errors import AnalysisException

from strandline.io.delta_log.log_activity import MAX_COMMITS, MINUTES, Appended, per_minute
from strandline.io.tables.kept_answers import KeptAnswers, State, TableSize
from strandline.io.tables.spark_tables import Tables
from strandline.model.query import Query
from strandline.model.tables import TableName

_FRESH_SECONDS: Final = 5.0


@dataclass(frozen=True)
class CachedSparkTables(Tables):
    """`Tables` that keeps each answer until the table has a new version. Only for reads."""

    @cached_property
    def _kept(self) -> KeptAnswers:
        return KeptAnswers(lambda table, _: self._state(table), fresh_seconds=_FRESH_SECONDS)

    def query(self, query: Query) -> list[dict[str, Any]]:
        return self._kept.query(query, lambda: super(CachedSparkTables, self).query(query))

    def column_types(self, table: TableName) -> dict[str, str]:
        return self._kept.get(table, "columns", lambda: super(CachedSparkTables, self).column_types(table))

    def properties(self, table: TableName) -> dict[str, str]:
        return self._kept.get(table, "properties", lambda: super(CachedSparkTables, self).properties(table))

    def can_query(self, table: TableName) -> bool:  # noqa: ARG002  # why: Spark can query every table
        return True

    def size(self, table: TableName) -> TableSize:
        """Return the size of *table*. I/O: a few Spark jobs that read its log."""
        return self._kept.get(table, "size", lambda: self._measured(table))

    def added_per_minute(self, table: TableName) -> list[int]:
        """Return the rows that *table* got in each of the last minutes, oldest first. I/O: a Spark job.

        No rows: there is no such table.
        """
        if not self.exists(table):
            return per_minute((), time.time())
        return per_minute(self._kept.get(table, "appended", lambda: self._commits_with_rows(table)), time.time())

    def _commits_with_rows(self, table: TableName) -> list[Appended]:
        rows = (
            self.spark.sql(f"DESCRIBE HISTORY {self.lake.sql(table)} LIMIT {MAX_COMMITS}")
            .where(f"operation = 'WRITE' AND timestamp > current_timestamp() - INTERVAL {MINUTES} MINUTES")
            .selectExpr("version", "unix_millis(timestamp) AS ms", "operationMetrics['numOutputRows'] AS rows")
            .collect()
        )
        return [Appended(row["version"], row["ms"] / 1000, int(row["rows"] or 0)) for row in rows]

    def _measured(self, table: TableName) -> TableSize:
        detail, (version, changed_at) = self.detail(table), self._newest_commit(table)
        return TableSize(
            rows=self.read(table).count(),  # Delta answers from the log
            files=detail["numFiles"],
            bytes=detail["sizeInBytes"],
            version=version,
            checkpoint=None,
            changed_at=datetime.fromtimestamp(changed_at / 1000, UTC),
        )

    def _state(self, table: TableName) -> State | None:
        try:
            return State(*self._newest_commit(table))
        except AnalysisException:
            return None  # there is no such table; the call itself says so

    def _newest_commit(self, table: TableName) -> tuple[int, int]:
        """Version and time of the newest commit, in milliseconds since 1970."""
        newest = self.spark.sql(f"DESCRIBE HISTORY {self.lake.sql(table)} LIMIT 1")
        ((version, changed_at),) = newest.selectExpr("version", "unix_millis(timestamp)").collect()
        return version, changed_at
