"""One collection merged in this process, without a Spark job: a small batch, or the first rows of its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.io.delta_log.mergeable_table import MOST_BYTES, ONLY_SPARK, MergeableTable
from strandline.io.delta_log.plain_protocol import make_plain
from strandline.io.spark.conflicts import OvertakenError
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.table_swap import CHANGE_FEED
from strandline.io.telemetry.metrics import count_alone
from strandline.io.telemetry.tracing import annotate
from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.silver.bronze_rows import BronzeRows
from strandline.jobs.silver.bronze_state import BronzeState, sweeps_of
from strandline.jobs.silver.column_changes import evolved_shape, warn_at_limit
from strandline.jobs.silver.first_load import FirstLoad
from strandline.model.lake_format import FORMAT, format_of
from strandline.model.merge_rule import NOTHING, Merged
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape, fold_case
from strandline.model.tables import TableName
from strandline.silver.batch_profile import BatchProfile
from strandline.silver.column_mapping import mapped_names
from strandline.silver.decode.numpy_scalars import arrow_type
from strandline.silver.fold.patches import CURRENT
from strandline.silver.merge_rule import merge_rule
from strandline.silver.owned_table import shape_in, shape_properties
from strandline.silver.schema.census import Census
from strandline.silver.schema.evolution import SchemaChange
from strandline.silver.silver_metadata import HAS_PATCHES, SilverMetadata, SilverState
from strandline.silver.small_batch import changes_of, profile, state_of, typed, without_deleted_values
from strandline.silver.small_fold import census_of_folded, folded_keys, folded_state


@dataclass(frozen=True)
class DirectRun:
    """Merges the changes of one collection, if this process can (decisions 71 and 82).

    Args:
        record: Records the columns that were added to the table.
    """

    ctx: PipelineContext
    namespace: Namespace
    table: TableName
    bronze: BronzeState
    record: Callable[[Sequence[SchemaChange]], None]

    def run(self) -> tuple[Merged, int] | None:
        """Merge the collection's new rows, then store the progress.

        I/O: reads bronze and the silver table's files; writes the table if it is missing, columns of a table without
        rows, one commit with rows, one with the progress. Idempotent.

        Returns:
            Numbers of changed rows and of added columns. None: Spark must merge the rows, because they are no small
            batch and no first load, or because it has errors, dead letters, sweeps, drops or renames to apply.

        Raises:
            OvertakenError: Another commit came first. No row was changed.
            LakeUnavailable: The lake cannot be read or written.
        """
        if (tables := self.bronze.direct) is None:
            return None
        with table_errors(self.table):
            try:
                delta_table = self._ready_table(tables)
                return None if delta_table is None else self._merge(tables, delta_table)
            except ONLY_SPARK:
                return None

    def _ready_table(self, tables: DeltaRsTables) -> MergeableTable | None:
        """Return the table, which is created if it is missing. None: Spark must prepare it, or merge it."""
        settings, name = self.ctx.settings, str(self.namespace)
        if not tables.exists(self.table):
            if settings.silver.compatibility_of(name) != "portable" or not tables.folder(self.table).is_empty():
                return None
            SilverMetadata(tables, self.table).open(name, settings.source.name)
        delta_table = MergeableTable.open(tables.folder(self.table), key="_key")
        is_ready = (
            delta_table is not None
            and SilverMetadata.is_fed_by(self.table, delta_table.properties, name, settings.source.name)
            and format_of(delta_table.properties) == FORMAT
            and delta_table.properties.get(CHANGE_FEED) == "true"
            and SilverState.of(delta_table.properties).compatibility == "portable"
        )
        return delta_table if is_ready else None

    def _merge(self, tables: DeltaRsTables, delta_table: MergeableTable) -> tuple[Merged, int] | None:
        """Do the work of `run` on an opened table."""
        state, through = SilverState.of(delta_table.properties), self.bronze.through
        after = self.bronze.progress_index.reached_version(self.namespace, state.progress)
        if after >= through.version:  # an earlier run was limited to this collection
            return NOTHING, 0
        after, increment = self.bronze.increment_for(self.namespace, state.progress, after)
        rows = self.bronze.direct_rows(increment)
        learned = self.bronze.learned(state.incarnations, self.namespace, increment)
        if rows is None or learned.lives.boundaries or learned.arrivals:
            return None
        sweeps = [sweep.position for sweep in sweeps_of(self.ctx, self.namespace, increment, after)]
        if state.progress is None and not delta_table.files:
            merged = self._load(state, delta_table, rows, after, sweeps)
        elif rows.few is not None and not sweeps:
            merged = self._merge_few(state, delta_table, rows.few, after)
        else:
            return None
        if merged is None:
            return None
        changed, columns, properties = merged
        if learned != state.incarnations:
            properties |= SilverMetadata.incarnation_properties(learned)
        tables.set_properties(self.table, through.properties | properties)  # a crash before this only repeats the MERGE
        return changed, columns

    def _load(
        self, state: SilverState, delta_table: MergeableTable, rows: BronzeRows, after: int, sweeps: Sequence[str]
    ) -> tuple[Merged, int, dict[str, str]] | None:
        """Load the first rows of the table. None: Spark must merge them, and sweep the table."""
        settings = self.ctx.settings.silver
        first = FirstLoad(self.namespace, rows, after, self.bronze.exact_updates)
        if not delta_table.has_bounds:
            return None
        batch, repeated = first.profile(settings.max_depth)
        if not batch.changes or batch.holds_patches or batch.census.holds_poison or not repeated.fit_memory:
            return None
        self._tell(batch)
        make_plain(delta_table.folder)
        table, evolved = self._reopened(delta_table, state.shape), self._evolved(state, batch.census)
        if evolved is None:
            return None
        shape, changes = evolved
        if changes:
            if not self._add_columns(table, shape, changes):
                return None
            table = self._reopened(delta_table, shape)
        merged, oldest = first.write(table, shape, repeated, hard_deletes=settings.deletes == "hard")
        if merged is None:
            raise self._overtaken()
        is_swept = oldest is not None and any(oldest < position for position in sweeps)
        return None if is_swept else (merged, len(changes), {})

    def _reopened(self, delta_table: MergeableTable, shape: Shape) -> MergeableTable:
        """I/O: opens the table again. Raises OvertakenError unless it still has no row, and has this *shape*."""
        table = MergeableTable.open(delta_table.folder, key="_key")
        if table is None or table.files or shape_in(table.properties) != shape:
            raise self._overtaken()
        return table

    def _tell(self, batch: BatchProfile) -> None:
        annotate(rows_in=batch.changes)
        count_alone(str(self.table), batch.alone)

    def _overtaken(self) -> OvertakenError:
        return OvertakenError(f"another process has changed {self.table}", next_step="strandline silver")

    def _add_columns(self, delta_table: MergeableTable, shape: Shape, changes: Sequence[SchemaChange]) -> bool:
        """I/O: adds columns and stores the *shape*. False: only Spark can; nothing was changed."""
        names = [change.path[0] for change in changes]
        present = set(map(fold_case, delta_table.schema.names))
        is_new = all(len(change.path) == 1 and not change.before for change in changes)
        if not is_new or present & set(map(fold_case, names)) or any(mapped_names(shape)):
            return False
        columns = pa.schema([(name, arrow_type(shape.fields[name])) for name in names])
        if not delta_table.add_columns(columns, shape_properties(shape)):
            raise self._overtaken()
        warn_at_limit(self.ctx.settings.silver, self.table, shape)
        self.record(changes)
        return True

    def _merge_few(
        self, silver_state: SilverState, delta_table: MergeableTable, few: pa.Table, after: int
    ) -> tuple[Merged, int, dict[str, str]] | None:
        """Merge a small batch. None: it is none, or Spark must change columns first or record poison."""
        settings = self.ctx.settings.silver
        changes = changes_of(few, self.namespace, after, exact_updates=self.bronze.exact_updates)
        if not changes.num_rows or changes["key"].null_count:
            return None
        keys = sorted(changes["key"].unique().to_pylist())
        files = delta_table.files_with(keys)
        if sum(file.size for file in files) > MOST_BYTES:
            return None
        batch, state, properties = profile(changes, max_depth=settings.max_depth), state_of(changes), {}
        self._tell(batch)
        if silver_state.has_patches or batch.holds_patches:
            state = self._folded(changes, state, delta_table.rows_with(keys, CURRENT), batch.census)
            properties = {HAS_PATCHES: "true"}
        evolved = self._evolved(silver_state, batch.census)
        if evolved is None or evolved[1] or batch.census.holds_poison:
            return None
        new = typed(without_deleted_values(state) if settings.deletes == "hard" else state, evolved[0])
        if not set(new.schema.names) <= set(delta_table.schema.names):
            return None
        columns = sorted({*new.schema.names, "_pending"})
        watermark = SilverMetadata.purge_watermark_in(delta_table.properties)
        rule = merge_rule(columns, deletes=settings.deletes, watermark=watermark)
        merged = delta_table.merge(delta_table.conformed(new, columns), rule, files)
        if merged is None:
            raise self._overtaken()
        return merged, 0, properties

    def _folded(self, changes: pa.Table, state: pa.Table, current: pa.Table, census: Census) -> pa.Table:
        """Fold updates without their document onto *current* rows. Adds the folded documents to *census*."""
        keys = folded_keys(changes, current)
        state = folded_state(changes, state, current, keys, self.bronze.gaps_of(self.namespace))
        census.merge(census_of_folded(state, keys, max_depth=self.ctx.settings.silver.max_depth))
        return state

    def _evolved(self, state: SilverState, census: Census) -> tuple[Shape, list[SchemaChange]] | None:
        """Return the shape that the batch needs, and the columns to add or widen. None: Spark must tell the error."""
        settings = self.ctx.settings.silver
        try:
            return evolved_shape(settings, self.namespace, state.shape, census, state.compatibility)
        except ValueError:
            return None
