"""What an idle collection costs: nothing.

Each silver table carries its own progress and is believed before anything else. A table without news is not touched, so its progress
falls behind; the ledger says of such a table "no row of it in bronze versions (own, through]". It is trusted only while the table's own
progress is not below *own*: a table that was dropped or restored begins anew. Losing the ledger costs one longer read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import functions as F

from pipelines.io.conflicts import retrying
from pipelines.io.tables import Tables, schema_of
from pipelines.model.columns import SILVER_PROGRESS, SILVER_PROGRESS_DDL
from pipelines.model.namespaces import Namespace
from pipelines.model.tables import TableName
from pipelines.silver.typed_table import Progress


@dataclass(frozen=True)
class Ledger:
    """Of each known collection: the progress its table had noted itself, and one version up to which all of them are complete."""

    bronze_id: str
    own: dict[Namespace, int]
    complete_through: int
    """-1: no run over all collections has ended yet."""
    moved: Mapping[str, Namespace] = field(default_factory=dict)
    """Where each renamed collection is now, by UUID."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """As which version the last run left each table: one that still is at it needs no look at its progress."""

    @staticmethod
    def read(tables: Tables, bronze_id: str) -> Ledger:
        """I/O: what the last run over all collections noted of this bronze table."""
        if not tables.exists(SILVER_PROGRESS):
            return Ledger(bronze_id, {}, -1)
        rows = tables.read(SILVER_PROGRESS).where(F.col("bronze") == bronze_id).collect()
        own = {Namespace(row["db"], row["collection"]): int(row["own_version"]) for row in rows}
        moved = {uuid: Namespace(row["db"], row["collection"]) for row in rows for uuid in row["came"]}
        versions = {table["name"]: table["version"] for row in rows for table in row["tables"]}
        return Ledger(bronze_id, own, min((int(row["through_version"]) for row in rows), default=-1), moved, versions)

    def own_progress(self, progress: Progress | None) -> int:
        """A table's own progress in this bronze table; -1 where it is new, or was built from another one."""
        return -1 if progress is None or progress.bronze_id != self.bronze_id else progress.version

    def effective(self, namespace: Namespace, own: int) -> int:
        """The version after which a table must read. Of a collection that is not known there is no row up to `complete_through`."""
        trusted = own >= self.own.get(namespace, -1)
        return max(own, self.complete_through) if trusted else own

    def advanced(
        self, namespaces: Iterable[Namespace], through: int, moved: Mapping[str, Namespace], versions: Mapping[str, int]
    ) -> Ledger:
        """The ledger after a run over all collections: *namespaces* had news, all others had none.

        Args:
            versions: As which the run left the tables that it touched.
        """
        own = self.own | dict.fromkeys(namespaces, through)
        return replace(self, own=own, complete_through=through, moved=moved, versions={**self.versions, **versions})

    def store(self, tables: Tables, tables_of: Callable[[Namespace], Iterable[TableName]]) -> None:
        """I/O: one small commit; none while nothing is known. Other sources of the lake keep their rows."""
        if self.own:
            schema = schema_of(SILVER_PROGRESS_DDL)
            rows = [
                (
                    self.bronze_id,
                    *namespace,
                    own,
                    self.complete_through,
                    [uuid for uuid, now in self.moved.items() if now == namespace],
                    [(str(table), self.versions[str(table)]) for table in tables_of(namespace) if str(table) in self.versions],
                )
                for namespace, own in sorted(self.own.items())
            ]
            if not tables.exists(SILVER_PROGRESS):
                tables.create(SILVER_PROGRESS, schema, comment="Up to where each collection's silver table is complete")
            for attempt in retrying():
                with attempt:
                    tables.replace_where(SILVER_PROGRESS, tables.spark.createDataFrame(rows, schema), "bronze", self.bronze_id)
