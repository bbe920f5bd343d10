"""One collection in a silver run: its new bronze rows are merged into its table."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from strandline.errors import ContractError
from strandline.io.spark import column_functions as F
from strandline.io.telemetry.metrics import count_alone
from strandline.io.telemetry.tracing import annotate
from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.column_changes import evolved_shape, record_schema_changes, warn_at_limit
from strandline.jobs.silver.direct_run import DirectRun
from strandline.jobs.silver.parts import Part, parts_of
from strandline.jobs.silver.table_ends import TableEnd, table_end
from strandline.jobs.silver.table_names import table_of
from strandline.model.engines import DELTA_RS, SPARK
from strandline.model.merge_rule import NOTHING, Merged
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.model.tables import TableName
from strandline.settings.silver import SilverSettings
from strandline.silver.batch_profile import BatchProfile, census_of_state, profile_batch
from strandline.silver.configured_properties import apply_properties, are_applied
from strandline.silver.decode.rows import typed_rows
from strandline.silver.fold.patches import fold_selected_keys
from strandline.silver.incarnations import fact_properties
from strandline.silver.key_filter import Keys
from strandline.silver.latest import READS, LatestRows, latest_rows, without_deleted_values
from strandline.silver.layout_properties import is_laid_out
from strandline.silver.schema.census import Census
from strandline.silver.schema.evolution import SchemaChange
from strandline.silver.silver_metadata import WITH_STATISTICS, SilverMetadata, SilverState
from strandline.silver.split_merge import MergePart, count_between, is_dense, merge_in_parts, split_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.jobs.context import JobContext
    from strandline.jobs.silver.constrained import ConstrainedTable
    from strandline.silver.constraints import Constraints
    from strandline.silver.silver_table import SilverTable

_log = logging.getLogger("strandline.silver")


@dataclass(frozen=True)
class SilverResult:
    """Result of one silver run for one table."""

    table: TableName
    namespace: Namespace
    inserted: int
    updated: int
    schema_changes: int
    seconds: float
    versions: int = 0
    """Rows of the history table that were added, changed or removed."""
    elements: int = 0
    """Rows of the child tables that were added, changed or removed."""
    inexact_reasons: tuple[str, ...] = ()
    """Reasons why a cut with this table is not exact; empty: it is exact."""
    engine: str = SPARK
    """Engine that merged the rows: ``Spark`` or ``delta-rs``. Versions are always written by Spark."""
    ends: tuple[TableEnd, ...] = ()
    """The silver table and the history table after the run."""

    def followed_by(self, later: SilverResult) -> SilverResult:
        """Return the result of this run and of a *later* one for the same table."""
        counts = ("inserted", "updated", "schema_changes", "seconds", "versions", "elements")
        return replace(later, **{name: getattr(self, name) + getattr(later, name) for name in counts})


@dataclass(frozen=True)
class CollectionRun:
    """Merges one collection into its silver table, up to the version of a bronze state."""

    ctx: PipelineContext
    namespace: Namespace
    bronze: BronzeState
    tables_at_once: int = field(default=1, kw_only=True)
    """Number of silver tables that are merged in parallel."""

    @property
    def _settings(self) -> SilverSettings:
        return self.ctx.settings.silver

    @cached_property
    def _name(self) -> TableName:
        return table_of(self.ctx, self.namespace)

    @cached_property
    def _spark(self) -> JobContext:
        return self.ctx.with_spark()

    @cached_property
    def _table(self) -> SilverTable:
        from strandline.silver.silver_table import SilverTable  # imports PySpark

        return SilverTable(self._spark.tables, self._name)

    @cached_property
    def _state(self) -> SilverState:
        name, settings = str(self.namespace), self._settings
        compatibility, pattern = settings.compatibility_of(name), settings.pattern_of(name)
        return self._table.open(name, self.ctx.settings.source.name, compatibility, pattern=pattern)

    def run(self) -> SilverResult:
        """Merge the collection's new rows, in this process or with Spark.

        I/O: reads bronze; writes the silver table. Order of side effects: archives of dropped incarnations, dead
        letters, new columns, MERGE, drops and renames, sweeps, progress, layout, properties.
        """
        started = time.monotonic()
        direct = self._merge_directly()
        merged, schema_changes = direct or self._merge_by_spark()
        self._lay_out()  # last: a wrong setting holds back no data
        return replace(self._result(merged, schema_changes, started), engine=SPARK if direct is None else DELTA_RS)

    def _merge_directly(self) -> tuple[Merged, int] | None:
        """Merge in this process: see `DirectRun.run`."""
        return DirectRun(self.ctx, self.namespace, self._name, self.bronze, self._record).run()

    def _merge_by_spark(self) -> tuple[Merged, int]:
        """Merge with Spark. Return what changed, and the number of columns that were added or widened."""
        state, through = self._state, self.bronze.through
        after = self.bronze.progress_index.reached_version(self.namespace, state.progress)
        if after >= through.version:  # an earlier run was limited to this collection
            return NOTHING, 0
        shape, merged, columns, facts = state.shape, NOTHING, 0, dict(state.facts)
        for part in parts_of(self.bronze, self.namespace, state.facts, state.progress, after):
            shape, counts, added = self._merge_part(part, shape)
            merged, columns = merged + counts, columns + added
            facts |= part.facts
        self._table.set_progress(through, fact_properties(facts, self.namespace))
        return merged, columns

    def _merge_part(self, part: Part, shape: Shape) -> tuple[Shape, Merged, int]:
        """Return as `_merge`. Rows that a drop archives or retires count as commits alone."""
        settings, incarnations, retired = self._settings, part.incarnations, NOTHING
        archived, changes = NOTHING, self._changes(part)
        if settings.on_drop == "archive":
            shape, archived = self._archive(part, shape, changes)
        shape, merged, columns = self._merge(part, shape, changes)
        if ends := incarnations.new_ends(part.earlier):
            retired = self._table.retire(incarnations, ends, deletes=settings.deletes, among=part.among)
        merged += self._sweep(part)
        return shape, replace(merged, commits=merged.commits + archived.commits + retired.commits), columns

    def _lay_out(self) -> None:
        """I/O: gives the table the layout and the properties of the settings. Mostly, it has them."""
        layout = self._settings.layout_of(str(self.namespace))
        properties = self._settings.properties_of(str(self.namespace))
        current = self.ctx.tables.properties(self._name)
        if not is_laid_out(current, layout, bookkeeping=WITH_STATISTICS):
            self._table.lay_out(layout)
        if not are_applied(current, properties):
            apply_properties(self._spark.tables, self._name, properties)

    def _result(self, merged: Merged, schema_changes: int, started: float) -> SilverResult:
        """I/O: reads the table's last commits, and why a cut with the table is not exact."""
        name, bronze = self._name, self.bronze
        version = bronze.progress_index.versions.get(str(name), -1)
        return SilverResult(
            name,
            self.namespace,
            merged.inserted,
            merged.updated,
            schema_changes,
            time.monotonic() - started,
            inexact_reasons=self._inexact_reasons(),
            ends=(table_end(self.ctx.tables, name, version, bronze.through, merged.commits),),
        )

    def _changes(self, part: Part) -> DataFrame:
        """Return the new rows of a part (columns `READS`)."""
        return part.changes().select(*READS)

    def _archive(self, part: Part, shape: Shape, changes: DataFrame) -> tuple[Shape, Merged]:
        """Archive dropped lives in order, each after its last change: the next one replaces its rows."""
        counts, ended, incarnations = NOTHING, sorted(part.earlier.lives.ends), part.incarnations
        dropped = {
            event.position: event.uuid if event.to is None else event.target_uuid
            for event in part.increment.events
            if event.to is None or event.to in part.collections
        }
        for end in incarnations.new_ends(part.earlier):
            if end not in dropped:
                continue
            shape, merged, _ = self._merge(part, shape, changes.where(F.col("position") < end), ended)
            archive = self._table.archive(incarnations, end, dropped[end], part.among)
            if archive is not None:
                _log.info("%s was dropped: its rows are kept in %s", part.collections[0], archive)
            counts += merged + self._table.retire(incarnations, [end], deletes=self._settings.deletes, among=part.among)
            ended.append(end)
        return shape, counts

    def _merge(
        self, part: Part, shape: Shape, changes: DataFrame, ends: Sequence[str] | None = None
    ) -> tuple[Shape, Merged, int]:
        """Count types, evolve the schema, reduce by key, and MERGE.

        Args:
            ends: Ends of lives that make tombstones. None: all.

        Returns:
            The table's new shape, the metrics of the MERGE, and the number of columns that were added or widened.
        """
        settings, table, incarnations = self._settings, self._table, part.incarnations
        profile = profile_batch(changes, max_depth=settings.max_depth)
        annotate(rows_in=profile.changes)
        count_alone(str(table.name), profile.alone)
        census, keys, folding = profile.census, profile.keys, self._keys_to_fold(profile)
        if folding is not None:
            current = self._spark.tables.read(table.name).where(keys.predicate("_key"))
            folds, folded = fold_selected_keys(changes, current, folding, part.gaps(), incarnations.lives)
            census.merge(census_of_state(folded, max_depth=settings.max_depth))
            latest = LatestRows(folds, None)
        else:
            is_distinct = profile.has_distinct_keys
            latest = latest_rows(changes, profile.changes, incarnations.lives, has_distinct_keys=is_distinct)
        if census.holds_poison:
            self._record_poison(latest.rows)
        shape, schema_changes = self._change_schema(shape, census)
        if not profile.changes:  # only drops, renames or snapshots; without keys the MERGE would read every row
            return shape, NOTHING, len(schema_changes)
        state = incarnations.with_tombstones(latest.rows, ends)
        deletes, lives, constraints = settings.deletes, incarnations.lives, table.constraints()
        state = without_deleted_values(state) if deletes == "hard" else state

        def typed(rows: DataFrame) -> DataFrame:
            return typed_rows(rows, shape, self._state.compatibility)

        in_parts = folding is None and not constraints.conditions
        parts = self._merge_parts(changes, profile, shape, latest.count) if in_parts else []
        if parts:
            merged = merge_in_parts(table, parts, state, typed, deletes=deletes, lives=lives)
        elif constraints.conditions:
            merged = self._constrained(constraints).merge(typed(state), shape, keys=keys, deletes=deletes, lives=lives)
        else:
            merged = table.merge(typed(state), keys=keys, deletes=deletes, lives=lives)
        return shape, merged, len(schema_changes)

    def _constrained(self, constraints: Constraints) -> ConstrainedTable:
        from strandline.jobs.silver.constrained import ConstrainedTable  # imports PySpark

        return ConstrainedTable(self._spark, self.namespace, self._table, constraints)

    def _record_poison(self, rows: DataFrame) -> None:
        from strandline.jobs.silver.undecodable import record_poison  # imports PySpark

        record_poison(self._spark, self.namespace, rows)

    def _merge_parts(
        self, changes: DataFrame, profile: BatchProfile, shape: Shape, count: int | None
    ) -> list[MergePart]:
        """Return the parts of a large batch. Empty: one MERGE is best."""
        if count is None and not profile.keys.is_stream_only:
            return []
        rows_in_range = self._spark.tables.read(self._table.name).where(profile.keys.predicate("_key"))
        between = count_between(rows_in_range, profile.changes)
        if between == 0 and count is not None:
            return [MergePart(None, profile.keys, count)]
        if not profile.keys.is_stream_only or is_dense(between, profile.changes):
            return []
        return split_changes(changes, columns=sum(1 for _ in shape.columns()), tables_at_once=self.tables_at_once)

    def _change_schema(self, shape: Shape, census: Census) -> tuple[Shape, list[SchemaChange]]:
        """Give the table the columns that the *census* needs. Return its new shape, and what was changed."""
        evolved, changes = self._evolved(shape, census)
        if changes:
            self._table.change_schema(evolved, changes, before=shape)
            self._record(changes)
        return evolved, changes

    def _evolved(self, shape: Shape, census: Census) -> tuple[Shape, list[SchemaChange]]:
        settings = self._settings
        try:
            evolved, changes = evolved_shape(settings, self.namespace, shape, census, self._state.compatibility)
        except ValueError as error:
            raise ContractError(
                f"{self._table.name}: {error}",
                next_step=f"strandline rebuild {self._table.name}: it types the table anew, from bronze",
            ) from None
        if changes:
            warn_at_limit(settings, self._name, evolved)
        return evolved, changes

    def _keys_to_fold(self, profile: BatchProfile) -> Keys | None:
        """Return the keys whose stored rows are needed to fold patches; None: there are no such keys.

        These are keys with new patches, and changed keys whose row has pending patches.
        """
        has_patches = self._state.has_patches
        if profile.holds_patches and not has_patches:
            self._table.mark_has_patches()
        return profile.keys_to_fold(self._spark.tables.read(self._table.name) if has_patches else None)

    def _inexact_reasons(self) -> tuple[str, ...]:
        """I/O: reads why a cut with the table is not exact. With looked-up updates no cut is exact: nothing is read."""
        if self.ctx.settings.capture.update_kind == "lookup":
            return ()
        return SilverMetadata(self.ctx.tables, self._name).inexact_reasons()

    def _sweep(self, part: Part) -> Merged:
        """Retire documents that complete snapshots did not find."""
        swept, tables = NOTHING, self._spark.tables
        for sweep, read_keys, among in part.sweeps(tables, self._table.name):
            swept += self._table.sweep(read_keys, sweep.position, deletes=self._settings.deletes, among=among)
        return swept

    def _record(self, changes: Sequence[SchemaChange]) -> None:
        record_schema_changes(self.ctx.tables, self._name, changes, self.bronze.through.version)
