"""What a stretch of bronze holds for silver: which collections changed, and which snapshots were completed."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F

from pipelines.io.tables import Tables
from pipelines.model.columns import CHANGE_OPS
from pipelines.model.tables import TableName
from pipelines.silver.ledger import Namespace
from pipelines.silver.sweep import Completed, completed_snapshot


@dataclass(frozen=True)
class News:
    """Of the versions of bronze above *after*."""

    after: int
    changed: frozenset[Namespace]
    completed: tuple[tuple[int, Completed], ...]
    """Snapshots that sweep, each with the version that completed it."""

    @staticmethod
    def read(tables: Tables, bronze: TableName, after: int, through: int) -> News:
        """I/O: one read of the versions above *after* up to *through*, whatever the number of collections."""
        if after >= through:
            return News(after, frozenset(), ())
        completion = (F.col("op") == "snapshot") & (F.col("operation_type") == "completed")
        rows = tables.changes(bronze, after + 1, through).where(F.col("op").isin(*CHANGE_OPS) | completion)
        at = F.when(completion, F.col("_commit_version")).alias("at")
        found = rows.select("db", "collection", F.when(completion, F.col("snapshot_id")).alias("snapshot_id"), at).distinct().collect()
        changed = frozenset(Namespace(row["db"], row["collection"]) for row in found if row["at"] is None)
        completed = ((row["at"], completed_snapshot(tables, bronze, row["snapshot_id"])) for row in found if row["at"] is not None)
        return News(after, changed, tuple((at, snapshot) for at, snapshot in completed if snapshot is not None))

    def completed_after(self, version: int) -> list[Completed]:
        return [snapshot for at, snapshot in self.completed if at > version]
