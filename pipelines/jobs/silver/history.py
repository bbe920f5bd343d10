"""The history of one collection: every version of every document, beside its silver table and with a progress of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.jobs.context import JobContext
from pipelines.jobs.silver.bronze_range import BronzeRange, sweeps_of
from pipelines.jobs.silver.table_names import table_of
from pipelines.model.namespaces import Namespace
from pipelines.model.shape import Shape
from pipelines.model.table_schemas import CHANGE_OPS
from pipelines.model.tables import history_of
from pipelines.silver.history.changes import HISTORY_READS, ends_at, facts_in, history_changes, swept_versions
from pipelines.silver.history.table import HistoryTable, OpenedHistory
from pipelines.silver.incarnations import IncarnationEnds, Incarnations
from pipelines.silver.latest import in_namespace
from pipelines.silver.progress_index import ProgressIndex
from pipelines.silver.silver_table import SilverTable
from pipelines.silver.typed_table import TypedTable, owners_in


@dataclass(frozen=True)
class HistoryRun:
    """Brings the history of one collection up to the end of a range of bronze. The silver table is there already."""

    ctx: JobContext
    namespace: Namespace
    range: BronzeRange

    @cached_property
    def _table(self) -> HistoryTable:
        return history_table(self.ctx, self.namespace)

    @cached_property
    def _opened(self) -> OpenedHistory:
        return self._table.open(str(self.namespace), self.ctx.settings.source.name)

    @cached_property
    def _shape(self) -> Shape:
        """The history's columns, once they are those of the silver table."""
        settings = self.ctx.settings
        silver = SilverTable(self.ctx.tables, table_of(self.ctx, self.namespace)).open(
            str(self.namespace), settings.source.name
        )
        return self._table.align_columns(self._opened.shape, silver.shape)

    def run(self) -> int:
        """I/O: read → columns of silver → MERGE → sweeps → progress, in this order of side effects. Returns how many versions changed.

        Effects on failure:
            The history ends with a whole MERGE and its old progress: the next run repeats it, whatever the silver table has noted.
        """
        opened, of = self._opened, self.range
        after = of.progress_index.reached_version(self.namespace, opened.progress)
        if after >= of.through.version:
            return 0
        settings = self.ctx.settings.silver
        after, increment = of.catch_up(self.namespace, opened.progress, after)
        drops, renames = settings.on_drop != "keep", settings.on_rename == "follow"
        lives = opened.incarnations.after(increment.events, self.namespace, drops=drops, renames=renames)
        ends = opened.ends.after(increment.events, self.namespace, drops=drops, renames=renames)
        facts = self._facts(after, lives)
        if ends != opened.ends:
            facts = facts.unionByName(ends_at(self._table.ended_versions(ends), F.col("end")))
        changed = self._merge(facts, ends)
        for sweep in sweeps_of(self.ctx, self.namespace, of, increment, after):
            gone = swept_versions(self._table.tables.read(self._table.name), sweep)
            changed += self._merge(ends_at(gone, F.lit(sweep.position)), ends)
        self._table.save_progress(of.through, lives, ends)
        return changed

    def _facts(self, after: int, lives: Incarnations) -> DataFrame:
        """What is new under the collection's name, at its own positions, and what a rename brought, right after the rename: of a collection
        that came just now, all there ever was."""
        of = self.range
        new = of.rows(after=after)
        facts = facts_in(new.where(in_namespace(self.namespace)))
        arrived = Incarnations(renamed_at=lives.newer_than(self._opened.incarnations).renamed_at)
        for came, rows in ((lives, new), (arrived, of.rows())):
            if came.renamed_at:
                brought = rows.where(F.col("op").isin(*CHANGE_OPS) & came.precedes_rename()).select(*HISTORY_READS)
                facts = facts.unionByName(facts_in(came.with_rename_positions(brought)))
        return facts

    def _merge(self, facts: DataFrame, ends: IncarnationEnds) -> int:
        hard, gaps = self.ctx.settings.silver.deletes == "hard", self.range.gaps_of(self.namespace)
        oldest = facts.agg(F.min("position"), F.max(F.col("op") == "d")).first()
        assert oldest is not None  # an aggregate has one row
        if oldest[0] is None:
            return 0
        since = "" if hard and oldest[1] else oldest[0]
        shape = self._shape  # before the table is read: it may get columns
        current = self._table.versions_since(since)
        changes = history_changes(facts, current, shape, ends=ends, gaps=gaps, hard_deletes=hard)
        return self._table.merge(changes, since=since)


def tables_of(ctx: JobContext, namespace: Namespace) -> list[TypedTable]:
    """All that a collection has in silver: its table, and the history where one is kept."""
    silver: TypedTable = SilverTable(ctx.tables, table_of(ctx, namespace))
    return [silver, history_table(ctx, namespace)] if ctx.settings.silver.keeps_history(str(namespace)) else [silver]


def known_collections(ctx: JobContext, progress_index: ProgressIndex) -> list[Namespace]:
    """I/O: every collection that has a table of this source. The ledger knows the collections of runs over all collections; a table that
    was merged by a run over some collections is found by its own properties."""
    return sorted(
        {*progress_index.own_versions, *map(HistoryTable.namespace_of, owners_in(ctx.tables, ctx.settings.source.name))}
    )


def history_table(ctx: JobContext, namespace: Namespace) -> HistoryTable:
    """The history of a collection's silver table."""
    return HistoryTable(ctx.tables, history_of(table_of(ctx, namespace)))
