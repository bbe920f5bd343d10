"""One silver table: its MERGE, and what ends its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.io.conflicts import retrying
from pipelines.io.merge import Merge, Merged
from pipelines.model.namespaces import Namespace
from pipelines.model.shape import Shape
from pipelines.model.table_schemas import SILVER_BOOKKEEPING_DDL
from pipelines.model.tables import TableName, literal, quoted
from pipelines.silver.fold.step import OVERSIZE, PATH, WAITING, reasons_in
from pipelines.silver.incarnations import Incarnations, tombstone_at
from pipelines.silver.key_filter import Keys
from pipelines.silver.purge_watermark import is_below
from pipelines.silver.typed_table import PROPERTIES, Progress, TypedTable, from_source, progress_in, shape_in

_FOLDS, _INCARNATIONS, _FLOOR = "strandline.has_patches", "strandline.incarnations", "strandline.purge_watermark"
_BOOKKEEPING = ("_position", "_op", "_deleted", "_cluster_time", "_bronze_version", "_collection_uuid", "_pending")

_DOUBTS: Final = {
    quoted(name): f"if(s._base_position IS NULL, coalesce(s.{name}, t.{name}), t.{name})"
    for name in ("_exact", "_inexact_because")
}
"""What a MERGE sets where the table's own document stays: a row without a document tells what is missing in that one now."""

CLUSTERED_BY = ("_key",)

Deletes = Literal["soft", "hard"]


@dataclass(frozen=True)
class Opened:
    """What a silver table knows of itself."""

    shape: Shape
    progress: Progress | None
    incarnations: Incarnations
    folds: bool
    """Patches have come for the table, so that any row may hold some that wait."""


@dataclass(frozen=True)
class SilverTable(TypedTable):
    """Reads and writes of ``silver.<collection>``."""

    def open(self, namespace: str, source: str) -> Opened:
        """I/O: creates the empty table if it is not there. Idempotent.

        Raises:
            ContractError: The table holds another collection, or another source's.
        """
        found = self.create(
            SILVER_BOOKKEEPING_DDL, namespace, source, cluster_by=CLUSTERED_BY, skipping=("_inexact_because",)
        )
        return Opened(
            shape_in(found), progress_in(found), Incarnations.from_json(found.get(_INCARNATIONS)), _FOLDS in found
        )

    def make_like(self, other: SilverTable, namespace: str) -> None:
        """I/O: creates the empty table with the columns of *other*, if it is not there."""
        self.create_like(other, namespace, cluster_by=CLUSTERED_BY)

    def namespace(self) -> Namespace | None:
        """I/O: which collection the table holds; None where there is no such silver table."""
        owner = self.owner()
        return Namespace.parse(owner) if owner else None

    def doubts(self) -> tuple[str, ...]:
        """I/O: one small aggregate, of a table that folds. Why rows that live lack changes, or may show a field under another name."""
        if _FOLDS not in self.tables.properties(self.name):
            return ()
        rows = self.tables.read(self.name).where("_inexact_because IS NOT NULL AND NOT _deleted")
        found = {
            reason for row in rows.select("_inexact_because").distinct().collect() for reason in reasons_in(row[0])
        }
        return tuple(sorted(found & {OVERSIZE, PATH, WAITING}))

    def note_folding(self) -> None:
        """I/O: one commit, before the first patch is merged. Idempotent."""
        self.tables.set_properties(self.name, {_FOLDS: "true"})

    def merge(self, rows: DataFrame, *, keys: Keys, deletes: Deletes) -> Merged:
        """MERGE *rows* by key under the position guard.

        Every row is the pair (newest change, newest document), each with its position. Larger wins, for each of the two on its own:
        a join semilattice, so any order, any batching and any repetition of rows ends in the same table. A late READ below a tombstone
        therefore fills in the tombstone's last values, and can never bring the document back. A row never mixes two incarnations of its
        collection: a change of another one takes the whole row, or nothing. A key that the table lacks is not inserted below the floor.
        A patch that waits is kept, wherever it stands.

        I/O: one commit, or none; tried again where another one goes before. Idempotent by the positions.

        Args:
            rows: As `typed_rows` returns them; unique by ``_key``.
            keys: Those of *rows*: files and rows of the table that hold none of them are not read.

        Raises:
            ContractError: As `require`.
        """
        self.require(rows.columns)
        return retrying()(
            lambda: self._inserting(self._updating(self._merging(rows, keys), rows, deletes), rows).execute()
        )

    def insert(self, rows: DataFrame, *, keys: Keys) -> Merged:
        """`merge` of those *rows* alone whose key the table lacks; the others are passed over. Of the table only keys are read."""
        self.require(rows.columns)
        return retrying()(lambda: self._inserting(self._merging(rows, keys), rows).execute())

    def update(self, rows: DataFrame, *, keys: Keys, deletes: Deletes) -> Merged:
        """`merge` of those *rows* alone whose key the table holds; the others are passed over. The table is not shuffled: every task gets
        all *rows*, so they must fit into memory."""
        self.require(rows.columns)
        return retrying()(lambda: self._updating(self._merging(F.broadcast(rows), keys), rows, deletes).execute())

    def _merging(self, rows: DataFrame, keys: Keys) -> Merge:
        return self.tables.merge(self.name, rows, f"t._key <=> s._key AND {keys.among('t._key')}")

    def _updating(self, merge: Merge, rows: DataFrame, deletes: Deletes) -> Merge:
        document = [name for name in rows.columns if name not in (*_BOOKKEEPING, "_key")]
        newer, newer_document = "s._position > t._position", "s._base_position > coalesce(t._base_position, '')"
        same_incarnation = "coalesce(s._collection_uuid = t._collection_uuid, true)"
        whole = from_source([*document, *_BOOKKEEPING])
        if deletes == "hard":
            merge = merge.update(whole, when=f"{newer} AND s._deleted")
        merge = merge.update(whole, when=f"{newer} AND ({newer_document} OR NOT {same_incarnation})")
        merge = merge.update(from_source(_BOOKKEEPING) | _DOUBTS, when=newer)
        late = f"{newer_document} AND {same_incarnation}" + ("" if deletes == "soft" else " AND NOT t._deleted")
        merge = merge.update(from_source([*document, "_pending"]), when=late)
        alive = "true" if deletes == "soft" else "NOT t._deleted"
        waits = f"size(s._pending) > coalesce(size(t._pending), 0) AND {same_incarnation} AND {alive}"
        return merge.update(from_source(["_pending"]) | _DOUBTS, when=waits)  # a patch below the newest one came later

    def _inserting(self, merge: Merge, rows: DataFrame) -> Merge:
        may_be_new = f"s._position >= {literal(self.purge_watermark())}"  # asked last, for it should not rise until the MERGE begins
        return merge.insert(from_source(rows.columns), when=may_be_new)

    def purge_watermark(self) -> str:
        """I/O: the position below which tombstones may be gone; empty: they are all there."""
        return self.tables.properties(self.name).get(_FLOOR, "")

    def purge(self, safe: str) -> tuple[int, int]:
        """I/O: removes the tombstones below the floor, then raises the floor to *safe*; one commit each, or none where no tombstone is
        concerned. Idempotent.

        What a raised floor uncovers goes with the next call: a MERGE that looked at the floor before it rose has ended by then.

        Args:
            safe: A `lowest_bound` of this table.

        Returns:
            How many were removed, and how many are left.
        """
        purge_watermark = self.purge_watermark()
        counts = (
            F.count_if(F.expr(is_below(purge_watermark))),
            F.count_if(F.expr(is_below(max(safe, purge_watermark)))),
            F.count_if("_deleted"),
        )
        ((going, concerned, all_of_them),) = self.tables.read(self.name).agg(*counts).collect()
        removed = retrying()(self.tables.delete, self.name, is_below(purge_watermark)) if going else 0
        for attempt in retrying() if concerned > going else ():
            with attempt:
                self.tables.set_properties(self.name, {_FLOOR: max(safe, self.purge_watermark())})
        return removed, all_of_them - removed

    def sweep(self, met: DataFrame, position: str, *, deletes: Deletes) -> int:
        """I/O: one MERGE that makes tombstones, at *position*, of living rows below it whose key is not among *met*. None, no commit.

        Args:
            met: Column ``key``.

        Returns:
            How many were retired.
        """
        below = (F.col("_position") < position) & ~F.col("_deleted")
        table = self.tables.read(self.name)
        gone = table.where(below).select("_key").join(met, F.col("_key").eqNullSafe(F.col("key")), "left_anti")
        if gone.isEmpty():
            return 0
        tombstone = {quoted(name): value for name, value in self._tombstone(literal(position), deletes).items()}
        merge = self.tables.merge(self.name, gone, "t._key <=> s._key")
        return merge.update(tombstone, when=f"t._position < {literal(position)}").execute().updated

    def retire(self, incarnations: Incarnations, *, deletes: Deletes) -> None:
        """I/O: one commit that turns every row whose incarnation is over into a tombstone, at the position of its end; or none where there
        is none. Idempotent."""
        self.tables.update(self.name, self._tombstone(incarnations.end(), deletes), incarnations.is_over())

    def _tombstone(self, position: str, deletes: Deletes) -> dict[str, str]:
        """SQL: what becomes of a row that ends at *position*; by ``deletes: hard``, nothing stays of what was in the document."""
        kept = {*_BOOKKEEPING, "_key"} - {"_pending"}
        values = [name for name in self.tables.read(self.name).columns if name not in kept] if deletes == "hard" else []
        return tombstone_at(position) | dict.fromkeys(values, "NULL")

    def archive(self, incarnations: Incarnations) -> list[TableName]:
        """I/O: copies the living rows of every incarnation that is over to a table of its own, one commit each. Idempotent: once they are
        retired there is nothing to copy, and what was copied stays.

        Returns:
            The tables, named after this one and the incarnation; where no UUID tells it, after the moment of its end.
        """
        ended = max(incarnations.ended.values(), default="")[:16]
        going = self.tables.read(self.name).where(f"{incarnations.is_over()} AND NOT _deleted")
        found = [row[0] for row in going.select("_collection_uuid").distinct().collect()]
        archives = []
        for uuid in found:
            archive = TableName("silver", f"{self.name.name}_dropped_{uuid[:8] if uuid else ended}")
            self.tables.create(archive, going.schema, properties=PROPERTIES, cluster_by=CLUSTERED_BY)
            self.tables.replace(archive, going.where(F.col("_collection_uuid").eqNullSafe(uuid)))
            archives.append(archive)
        return archives

    def advance(self, progress: Progress, incarnations: Incarnations) -> None:
        """I/O: one commit that notes progress and incarnations. After the MERGE: a crash between the two only repeats a MERGE."""
        known = {_INCARNATIONS: incarnations.to_json()} if incarnations != Incarnations() else {}
        self.note_progress(progress, known)
