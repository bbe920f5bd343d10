"""What an idle collection costs: nothing.

Each silver table carries its own progress and is believed before anything else. A table without news is not touched, so its progress
falls behind; the ledger says of such a table "no row of it in bronze versions (own, through]". It is trusted only while the table's own
progress is not below *own*: a table that was dropped or restored begins anew. Losing the ledger costs one longer read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Row

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
    others: Sequence[Row] = ()
    """Rows of the lake's other sources, as they were found."""

    @staticmethod
    def read(tables: Tables, bronze_id: str) -> Ledger:
        """I/O: what the last run over all collections noted of this bronze table."""
        if not tables.exists(SILVER_PROGRESS):
            return Ledger(bronze_id, {}, -1)
        found = tables.read(SILVER_PROGRESS).collect()  # all of it: a filter would make Delta look through the statistics of its few files
        rows = [row for row in found if row["bronze"] == bronze_id]
        own = {Namespace(row["db"], row["collection"]): int(row["own_version"]) for row in rows}
        return Ledger(
            bronze_id,
            own,
            complete_through=min((int(row["through_version"]) for row in rows), default=-1),
            moved={uuid: Namespace(row["db"], row["collection"]) for row in rows for uuid in row["came"]},
            versions={table["name"]: table["version"] for row in rows for table in row["tables"]},
            others=[row for row in found if row["bronze"] != bronze_id],
        )

    def own_progress(self, progress: Progress | None) -> int:
        """A table's own progress in this bronze table; -1 where it is new, or was built from another one."""
        return -1 if progress is None or progress.bronze_id != self.bronze_id else progress.version

    def effective(self, namespace: Namespace, own: int) -> int:
        """The version after which a table must read. Of a collection that is not known there is no row up to `complete_through`."""
        trusted = own >= self.own.get(namespace, -1)
        return max(own, self.complete_through) if trusted else own

    def reached(self, namespace: Namespace, progress: Progress | None) -> int:
        """The same, of a table that notes *progress* itself."""
        return self.effective(namespace, self.own_progress(progress))

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
        """I/O: one small commit; none while nothing is known. Of two sources that store at the same moment one may be set back: it reads
        more the next time."""
        if not self.own:
            return
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
        frame = tables.spark.createDataFrame([*rows, *map(tuple, self.others)], schema_of(SILVER_PROGRESS_DDL))
        for attempt in retrying():
            with attempt:
                tables.replace(SILVER_PROGRESS, frame)
