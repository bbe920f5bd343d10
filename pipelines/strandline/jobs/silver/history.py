"""The history of one collection: every version of every document, in a table with its own progress."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.jobs.context import JobContext
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.constrained import ConstrainedTable
from strandline.jobs.silver.parts import Part, parts_of
from strandline.jobs.silver.table_ends import TableEnd, table_end
from strandline.jobs.silver.table_names import names_of, table_of
from strandline.model.merge_rule import NOTHING, Merged
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.model.table_schemas import CHANGE_OPS
from strandline.model.tables import history_of
from strandline.silver.configured_properties import apply_properties
from strandline.silver.history.changes import ends_at, facts_in, history_changes, swept_versions
from strandline.silver.history.table import HistoryState, HistoryTable
from strandline.silver.incarnations import fact_properties
from strandline.silver.latest import in_namespace
from strandline.silver.silver_table import SilverTable
from strandline.silver.typed_table import TypedTable


@dataclass(frozen=True)
class HistoryRun:
    """Merges one collection into its history table, up to the version of a bronze state. Its silver table exists."""

    ctx: JobContext
    namespace: Namespace
    bronze: BronzeState

    @cached_property
    def _table(self) -> HistoryTable:
        return history_table(self.ctx, self.namespace)

    @cached_property
    def _state(self) -> HistoryState:
        settings = self.ctx.settings
        compatibility = settings.silver.compatibility_of(str(self.namespace))
        return self._table.open(str(self.namespace), settings.source.name, compatibility)

    @cached_property
    def _shape(self) -> Shape:
        """Shape of the history table, after it got the columns of the silver table."""
        settings = self.ctx.settings
        silver = SilverTable(self.ctx.tables, table_of(self.ctx, self.namespace)).open(
            str(self.namespace), settings.source.name
        )
        return self._table.align_columns(self._state.shape, silver.shape)

    def run(self) -> tuple[Merged, TableEnd]:
        """Merge the collection's new versions. Return what changed, and the table after the run.

        I/O: reads bronze; writes the history table. Order of side effects: new columns, MERGE, sweeps, progress,
        properties.

        Effects on failure:
            The progress is not advanced, so the next run repeats the MERGE. The silver table's progress is separate.
        """
        changed, bronze = self._run(), self.bronze
        version = bronze.progress_index.versions.get(str(self._table.name), -1)
        return changed, table_end(self.ctx.tables, self._table.name, version, bronze.through, changed.commits)

    def _run(self) -> Merged:
        """Do the work of `run`."""
        state, bronze = self._state, self.bronze
        after = bronze.progress_index.reached_version(self.namespace, state.progress)
        if after >= bronze.through.version:
            return NOTHING
        settings = self.ctx.settings.silver
        changed, facts = NOTHING, dict(state.facts)
        for part in parts_of(bronze, self.namespace, state.facts, state.progress, after):
            changed += self._merge_part(part)
            facts |= part.facts
        self._table.set_progress(bronze.through, fact_properties(facts, self.namespace))
        apply_properties(self.ctx.tables, self._table.name, settings.properties_of(str(self.namespace)))
        return changed

    def _merge_part(self, part: Part) -> Merged:
        bronze, lives, facts, table = self.bronze, part.incarnations.lives, self._facts(part), self._table
        if part.incarnations.new_ends(part.earlier):
            facts = facts.unionByName(ends_at(table.ended_versions(lives, part.among), F.col("end")))
        changed = self._merge(part, facts)
        for sweep, read_keys, among in part.sweeps(self.ctx.tables, table.name):
            gone = swept_versions(self.ctx.tables.read(table.name).where(among), read_keys, sweep)
            if (
                bronze.horizon is not None and sweep.position < bronze.horizon.position
            ):  # a READ is gone if the key has a newer document
                gone = gone.where(F.col("_valid_to_position").isNull())
            changed += self._merge(part, ends_at(gone, F.lit(sweep.position)))
        return changed

    def _facts(self, part: Part) -> DataFrame:
        """Return new facts of the collections: rows under their names, and rows that renames brought here.

        Rows under a collection's name keep their positions. Rows that a rename brought are placed right after the
        rename; all of them are returned if the rename is in this increment.
        """
        new, incarnations = self.bronze.rows(after=part.after), part.incarnations
        facts = facts_in(part.keyed(new.where(in_namespace(*part.collections))))
        sources = ((incarnations.arrivals, new), (incarnations.new_arrivals(part.earlier), self.bronze.rows()))
        for arrivals, rows in sources:
            if arrivals:
                brought = rows.where(F.col("op").isin(*CHANGE_OPS) & incarnations.is_brought(arrivals))
                facts = facts.unionByName(facts_in(part.keyed(incarnations.with_rename_positions(brought))))
        return facts

    def _merge(self, part: Part, facts: DataFrame) -> Merged:
        hard, gaps, lives = self.ctx.settings.silver.deletes == "hard", part.gaps(), part.incarnations.lives
        oldest = facts.agg(F.min("position"), F.max(F.col("op") == "d")).first()
        assert oldest is not None  # an aggregate has one row
        if oldest[0] is None:
            return NOTHING
        since = "" if hard and oldest[1] else oldest[0]
        shape = self._shape  # before the table is read: this may add columns to it
        current = self._table.versions_since(since)
        kind = self._state.compatibility
        changes = history_changes(facts, current, shape, kind, lives=lives, gaps=gaps, hard_deletes=hard)
        if (constraints := self._table.constraints()).conditions:
            target = ConstrainedTable(self.ctx, self.namespace, self._table, constraints)
            return target.merge_history(changes, shape, since=since)
        return self._table.merge(changes, since=since)


def tables_of(ctx: JobContext, namespace: Namespace) -> list[TypedTable]:
    """Return the tables of `names_of`."""
    silver, *history = names_of(ctx, namespace)
    return [SilverTable(ctx.tables, silver), *(HistoryTable(ctx.tables, name) for name in history)]


def history_table(ctx: JobContext, namespace: Namespace) -> HistoryTable:
    """Return the history table of a collection."""
    return HistoryTable(ctx.tables, history_of(table_of(ctx, namespace)))
