"""A silver table: MERGE, sweep, retirement and purge of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.io.spark.races import retrying
from strandline.io.tables.spark_tables import Tables
from strandline.model.layout import Layout
from strandline.model.lives import ONE_LIFE, Lives
from strandline.model.merge_rule import NOTHING, Merged, MergeRule
from strandline.model.tables import TableName, literal
from strandline.silver.compatibility import compatibility_in, is_mapped_in, properties_of
from strandline.silver.incarnations import Incarnations, are_one, tombstone_at
from strandline.silver.key_filter import Keys
from strandline.silver.layout import lay_out
from strandline.silver.merge_rule import CHANGE_COLUMNS, Deletes, insert_rule, merge_rule, refused_rule, update_rule
from strandline.silver.owned_table import shape_in
from strandline.silver.purge_watermark import is_below
from strandline.silver.silver_metadata import PURGE_WATERMARK, WITH_STATISTICS, SilverMetadata
from strandline.silver.typed_table import TypedTable


@dataclass(frozen=True)
class SilverTable(SilverMetadata, TypedTable):
    """Read and write ``silver.<collection>``."""

    tables: Tables

    def create_empty_copy(self, other: SilverTable, namespace: str) -> None:
        """Create an empty table with the columns of *other*, if it does not exist. I/O: at most one commit."""
        compatibility = compatibility_in(self.tables.properties(other.name))
        self.create_like(other, namespace, cluster_by=self._clustering(compatibility))

    def lay_out(self, layout: Layout) -> None:
        """Give the table its layout: see `layout.lay_out`. I/O: at most three commits. Idempotent."""
        lay_out(self.tables, self.name, layout, bookkeeping=WITH_STATISTICS)

    def merge(self, rows: DataFrame, *, keys: Keys, deletes: Deletes, lives: Lives = ONE_LIFE) -> Merged:
        """MERGE *rows* by key, by the rule of `merge_rule`.

        I/O: writes at most one commit; retried after a write conflict. Idempotent by the positions.

        Args:
            rows: Output of `typed_rows`; unique by ``_key``.
            keys: Keys of *rows*. Files and rows of the table outside these keys are not read.
            deletes: ``hard`` clears the values of deleted documents; ``soft`` keeps the last ones.
            lives: Lives of the collection's name.

        Raises:
            ContractError: See `require`.
        """
        # The watermark is read as late as possible: it should not rise before the MERGE begins.
        return self._merge(
            rows,
            lambda: merge_rule(
                rows.columns, deletes=deletes, watermark=self.purge_watermark(), same_life=_same_life(lives)
            ),
            keys,
        )

    def insert(self, rows: DataFrame, *, keys: Keys) -> Merged:
        """MERGE only the *rows* whose key the table lacks.

        Other rows are skipped. Only the table's key columns are read.
        """
        return self._merge(rows, lambda: insert_rule(rows.columns, watermark=self.purge_watermark()), keys)

    def update(self, rows: DataFrame, *, keys: Keys, deletes: Deletes, lives: Lives = ONE_LIFE) -> Merged:
        """MERGE only the *rows* whose key the table holds. Other rows are skipped.

        The table is not shuffled: *rows* are broadcast to every task, so they must fit into memory.
        """
        return self._merge(
            F.broadcast(rows), lambda: update_rule(rows.columns, deletes=deletes, same_life=_same_life(lives)), keys
        )

    def merge_refused(self, rows: DataFrame, *, keys: Keys, deletes: Deletes, lives: Lives = ONE_LIFE) -> Merged:
        """MERGE *rows* that a constraint of the table refuses as new rows, by the rule of `refused_rule`."""
        return self._merge(rows, lambda: refused_rule(deletes=deletes, same_life=_same_life(lives)), keys)

    def _merge(self, rows: DataFrame, rule: Callable[[], MergeRule], keys: Keys) -> Merged:
        self.require(rows.columns)
        return retrying()(lambda: self.tables.merge(self.name, rows, rule(), among=keys.predicate("t._key")))

    def purge(self, safe: str) -> tuple[int, int]:
        """Delete the tombstones below the purge watermark, then raise the watermark to *safe*.

        Tombstones between the old and the new watermark are deleted by the next call. By then, no MERGE that read the
        old watermark is still running. Tombstones at or above *safe* stay, whatever the watermark.

        I/O: reads the table; writes one commit for the delete and one for the watermark, or none if no tombstone is
        affected. Idempotent.

        Args:
            safe: Position of the `lowest_bound` for this table.

        Returns:
            Number of tombstones deleted, and number left.
        """
        purge_watermark = self.purge_watermark()
        purged = is_below(min(safe, purge_watermark))
        counts = (
            F.count_if(F.expr(purged)),
            F.count_if(F.expr(is_below(max(safe, purge_watermark)))),
            F.count_if("_deleted"),
        )
        ((purgeable, below_safe, total),) = self.tables.read(self.name).agg(*counts).collect()
        removed = retrying()(self.tables.delete, self.name, purged) if purgeable else 0
        for attempt in retrying() if safe > purge_watermark and below_safe > purgeable else ():
            with attempt:
                self.tables.set_properties(self.name, {PURGE_WATERMARK: max(safe, self.purge_watermark())})
        return removed, total - removed

    def sweep(self, read_keys: DataFrame, position: str, *, deletes: Deletes, among: str = "true") -> Merged:
        """Turn live rows below *position* into tombstones if the snapshot did not read their key.

        I/O: reads the table; writes one MERGE, or nothing if no row is affected. Idempotent.

        Args:
            read_keys: Keys that the snapshot read (column ``key``).
            position: Position of the tombstones.
            among: SQL: true for the rows of the collection that the snapshot read.
        """
        below = (F.col("_position") < position) & ~F.col("_deleted")
        table = self.tables.read(self.name).where(among)
        gone = table.where(below).select("_key").join(read_keys, F.col("_key").eqNullSafe(F.col("key")), "left_anti")
        if gone.isEmpty():
            return NOTHING
        rule, is_older = MergeRule(("_key",)), f"t._position < {literal(position)}"
        if self._refuses_tombstones(deletes):
            return self.tables.merge(self.name, gone, rule.delete(when=is_older))
        tombstone = self._tombstone(literal(position), deletes)
        return self.tables.merge(self.name, gone, rule.update([], tombstone, when=is_older))

    def retire(
        self, incarnations: Incarnations, ends: Sequence[str], *, deletes: Deletes, among: str = "true"
    ) -> Merged:
        """Turn every row whose life ended at one of *ends* into a tombstone at the position of that end.

        I/O: writes one commit, or none if no row is affected. Idempotent.

        Args:
            among: SQL: true for the rows of the collection.
        """
        ended_at = incarnations.end_position(ends)
        has_ended = f"{ended_at} IS NOT NULL AND {among}"
        if self._refuses_tombstones(deletes):
            deleted = self.tables.delete(self.name, has_ended)
            return Merged(0, 0, deleted, commits=int(deleted > 0))
        updated = self.tables.update(self.name, self._tombstone(ended_at, deletes), has_ended)
        return Merged(0, updated, 0, commits=int(updated > 0))

    def _refuses_tombstones(self, deletes: Deletes) -> bool:
        """Return True if a constraint refuses a tombstone, which has no values with ``deletes: hard``."""
        return deletes == "hard" and self.constraints().refuse_empty_rows(self.tables.read(self.name))

    def _tombstone(self, position: str, deletes: Deletes) -> dict[str, str]:
        """Return the SET clause (column → SQL) of a tombstone at *position*.

        With ``deletes: hard``, all values become NULL, but those that the collection's name gives.
        """
        fields = shape_in(self.tables.properties(self.name)).fields
        groups = {name for name, inner in fields.items() if inner.pattern is not None}
        kept_columns = {*CHANGE_COLUMNS, "_key", *groups} - {"_pending"}
        values = (
            [name for name in self.tables.read(self.name).columns if name not in kept_columns]
            if deletes == "hard"
            else []
        )
        return tombstone_at(position) | dict.fromkeys(values, "NULL")

    def archive(
        self, incarnations: Incarnations, ended_at: str, uuid: str | None, among: str = "true"
    ) -> TableName | None:
        """Copy the live rows of the life that ended at *ended_at* to an archive table of their own.

        I/O: reads the table; writes one commit. Idempotent: retired rows are not copied again, and archives stay.

        Args:
            uuid: UUID of the dropped collection. It names the archive. None: the position of the end names it.
            among: SQL: true for the rows of the collection.

        Returns:
            The archive table. None: the life has no live rows.
        """
        ended_rows = self.tables.read(self.name).where(
            f"{incarnations.end_position([ended_at])} IS NOT NULL AND NOT _deleted AND {among}"
        )
        if ended_rows.isEmpty():
            return None
        own = self.tables.properties(self.name)
        compatibility = compatibility_in(own)
        properties = properties_of(compatibility, is_mapped=is_mapped_in(own))
        archive = TableName("silver", f"{self.name.name}_dropped_{uuid[:8] if uuid else ended_at[:16]}")
        clustering = self._clustering(compatibility)
        self.tables.create(archive, ended_rows.schema, properties=properties, cluster_by=clustering)
        self.tables.replace(archive, ended_rows)
        return archive


def _same_life(lives: Lives) -> str:
    return are_one(lives, "s._position", "t._position")
