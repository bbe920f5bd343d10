"""One collection merged in this process, without a Spark job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from strandline.io.delta_log.mergeable_table import ONLY_SPARK, MergeableTable
from strandline.io.delta_log.parquet_file import DataFile
from strandline.io.delta_log.plain_protocol import make_plain
from strandline.io.delta_log.stored_files import StoredFile
from strandline.io.spark.races import OvertakenError
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.table_store import CHANGE_FEED
from strandline.io.telemetry.metrics import count_alone
from strandline.io.telemetry.tracing import annotate
from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.column_changes import evolved_shape, warn_at_limit
from strandline.jobs.silver.direct_batch import DirectBatch
from strandline.jobs.silver.parts import parts_of
from strandline.model.gap import Gap
from strandline.model.lake_format import FORMAT, format_of
from strandline.model.merge_rule import NOTHING, Merged
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape, fold_case
from strandline.model.table_schemas import BOOKKEEPING
from strandline.model.tables import TableName
from strandline.silver.batch_rows import BatchRows, HeldKeys, row_groups
from strandline.silver.column_mapping import mapped_names
from strandline.silver.compatibility import compatibility_in
from strandline.silver.decode.numpy_scalars import arrow_type
from strandline.silver.fold.patches import CURRENT
from strandline.silver.incarnations import fact_properties
from strandline.silver.merge_rule import merge_rule
from strandline.silver.owned_table import shape_in, shape_properties
from strandline.silver.schema.census import Census
from strandline.silver.schema.evolution import SchemaChange
from strandline.silver.silver_metadata import HAS_PATCHES, SilverMetadata, SilverState
from strandline.silver.small_fold import census_of_folded, folded_keys, folded_state

_FEW: Final = 10_000
"""Changes that are merged together, new keys too, if the table has one of the keys."""


@dataclass(frozen=True)
class DirectRun:
    """Merges the changes of one collection, if this process can (decision 71).

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

        I/O: reads bronze and the silver table's files; writes the table if it is missing, new columns, a commit with
        new rows, one with changed rows, one with the progress. Idempotent.

        Returns:
            Numbers of changed rows and of added columns. None: Spark must merge the rows, because they do not fit the
            memory of this process, or because it has errors, dead letters, wider columns, sweeps, drops or renames to
            apply. Some of the rows may be merged. A repetition has no effect on them.

        Raises:
            OvertakenError: Another commit came first. A part of the rows may be merged. Call again.
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
        pattern = settings.silver.pattern_of(name)
        if not tables.exists(self.table):
            if settings.silver.compatibility_of(name) != "portable" or not tables.folder(self.table).is_empty():
                return None
            SilverMetadata(tables, self.table).open(name, settings.source.name, pattern=pattern)
        delta_table = MergeableTable.open(tables.folder(self.table), key="_key")
        is_ready = (
            delta_table is not None
            and SilverMetadata.is_fed_by(self.table, delta_table.properties, name, settings.source.name)
            and format_of(delta_table.properties) == FORMAT
            and delta_table.properties.get(CHANGE_FEED) == "true"
            and compatibility_in(delta_table.properties) == "portable"
        )
        if delta_table is None or not is_ready:
            return None
        SilverMetadata(tables, self.table).require_pattern(delta_table.properties, pattern)
        return delta_table

    def _merge(self, tables: DeltaRsTables, delta_table: MergeableTable) -> tuple[Merged, int] | None:
        """Do the work of `run` on an opened table."""
        state, through = SilverState.of(delta_table.properties, self.namespace), self.bronze.through
        after = self.bronze.progress_index.reached_version(self.namespace, state.progress)
        if after >= through.version:  # an earlier run was limited to this collection
            return NOTHING, 0
        parts = parts_of(self.bronze, self.namespace, state.facts, state.progress, after)
        changed, columns, properties = NOTHING, 0, dict[str, str]()
        for part in parts[:1]:  # a tenant table without changes has none
            rows = self.bronze.direct_rows(part.increment)
            if rows is None or len(parts) > 1 or not part.is_plain:
                return None
            sweeps = [sweep.position for name in part.collections for sweep in part.sweeps_of(name)]
            batch = DirectBatch(part.collections, rows, part.after, self.bronze.exact_updates, part.are_tenants)
            if (merged := self._merge_batch(state, delta_table, batch, part.gaps, max(sweeps, default=""))) is None:
                return None
            changed, columns, properties = merged
            facts = fact_properties({**state.facts, **part.facts}, self.namespace)
            properties |= dict(facts.items() - delta_table.properties.items())
        properties |= through.properties
        if not delta_table.set_properties(properties):  # a crash before this only repeats the MERGE
            tables.set_properties(self.table, properties)
        return changed, columns

    def _merge_batch(
        self,
        state: SilverState,
        delta_table: MergeableTable,
        batch: DirectBatch,
        gaps: Callable[[], Sequence[Gap]],
        sweep: str,
    ) -> tuple[Merged, int, dict[str, str]] | None:
        """Merge a batch: append the rows of keys that the table lacks, and merge the others.

        Args:
            gaps: Returns the gaps across which no patch may be folded.
            sweep: Position below which a live row may have to be swept. Empty: no sweep.

        Returns:
            Numbers of rows and of added columns, and properties to set with the progress. None: Spark must merge.
        """
        settings = self.ctx.settings.silver
        if delta_table.may_hold_below("_position", sweep):
            return None
        profile, changes = batch.profile(settings.max_depth)
        if not profile.changes:
            return NOTHING, 0, {}
        if delta_table.files and changes["key"].null_count:
            return None
        annotate(rows_in=profile.changes)
        count_alone(str(self.table), profile.alone)
        matches = delta_table.find_keys(changes["key"])
        folds = state.has_patches or profile.holds_patches
        are_few = batch.is_in_memory and changes.num_rows <= _FEW
        merges_all = (matches and are_few) or not delta_table.has_bounds
        of_table = [keys for _, keys in matches]
        held = HeldKeys.all(changes) if merges_all else HeldKeys.among(changes, of_table, without_documents=folds)
        if not held.fit_memory:
            return None
        newest = self._newest(delta_table, batch, held, profile.census, gaps if folds else None)
        if (evolved := self._evolved(state, profile.census)) is None or profile.census.holds_poison:
            return None
        shape, schema_changes = evolved
        if (
            table := self._prepared(delta_table, shape, schema_changes, appends=not (matches and held.are_all))
        ) is None:
            return None
        watermark = SilverMetadata.purge_watermark_in(delta_table.properties)
        rows = BatchRows(held, shape, settings.deletes == "hard", watermark)
        merged = self._write(table, batch, rows, newest, [file for file, _ in matches])
        if any(position < sweep for position in rows.oldest):
            return None
        return merged, len(schema_changes), {HAS_PATCHES: "true"} if folds else {}

    def _write(
        self,
        table: MergeableTable,
        batch: DirectBatch,
        rows: BatchRows,
        newest: pa.Table,
        files: Sequence[StoredFile],
    ) -> Merged:
        """I/O: writes the batch: a commit with the rows of new keys, and one with those of the keys that *files* hold.

        Args:
            newest: State of the held keys.
        """
        held, merged = rows.typed_parts(newest), NOTHING
        new = [] if rows.held.are_all else batch.write_single(table, rows)
        if not files:
            new += table.write(row_groups(map(rows.new, held)))
        if new:
            merged = self._certain(table.load(new))
            table = self._reopened(table, rows.shape, new)
        if files:
            merged += self._merge_held(table, rows, pa.concat_tables(held), files)
        table.tidy()
        return merged

    def _merge_held(
        self, table: MergeableTable, rows: BatchRows, held: pa.Table, files: Sequence[StoredFile]
    ) -> Merged:
        """I/O: merges *held* rows: one commit for each group of *files*."""
        columns = sorted({*held.schema.names, "_pending"})
        rule = merge_rule(columns, deletes=self.ctx.settings.silver.deletes, watermark=rows.watermark)
        held, merged = table.conformed(held, columns), NOTHING
        for group, is_own in table.shares(files, held["_key"]):
            merged += self._certain(table.merge(held.filter(is_own), rule, group))
        return merged

    def _newest(
        self,
        delta_table: MergeableTable,
        batch: DirectBatch,
        held: HeldKeys,
        census: Census,
        gaps: Callable[[], Sequence[Gap]] | None,
    ) -> pa.Table | None:
        """I/O: reads the changes of the *held* keys. Returns their state: see `state_of`. None: no key is held.

        Args:
            gaps: Updates without their document are folded onto the rows of the table, which are read, but not across
                these gaps. *census* then gets the folded documents. None: there are no such updates.
        """
        if not len(held.keys):
            return None
        changes, state = batch.state_of(held)
        if gaps is not None:
            current = delta_table.rows_with(changes["key"], CURRENT)
            keys = folded_keys(changes, current)
            state = folded_state(changes, state, current, keys, gaps())
            census.merge(census_of_folded(state, keys, max_depth=self.ctx.settings.silver.max_depth))
        return state

    def _prepared(
        self, delta_table: MergeableTable, shape: Shape, changes: Sequence[SchemaChange], *, appends: bool
    ) -> MergeableTable | None:
        """I/O: gives the table new columns, and opens it again. None: only Spark can; nothing was changed.

        Args:
            appends: True: the table needs a protocol that this process writes, also without new columns.
        """
        in_table = [change for change in changes if change.is_kept]
        names = [change.path[0] for change in in_table]
        present = set(map(fold_case, delta_table.schema.names))
        is_new = all(len(change.path) == 1 and not change.before for change in in_table)
        if in_table and (not is_new or present & set(map(fold_case, names)) or any(mapped_names(shape))):
            return None
        columns_of_shape = {name for name, _ in shape.columns()}  # not of an empty document or array so far
        if not {*BOOKKEEPING, *columns_of_shape} - {*names} <= {*delta_table.schema.names}:
            return None
        if not changes and not appends:
            return delta_table
        table = delta_table
        if not table.is_plain:
            make_plain(table.folder)
            table = self._reopened(table, shape_in(table.properties))
        if changes:
            columns = pa.schema([(name, arrow_type(shape.fields[name])) for name in names])
            if not table.add_columns(columns, shape_properties(shape)):
                raise self._overtaken()
            warn_at_limit(self.ctx.settings.silver, self.table, shape)
            self.record(changes)
            table = self._reopened(delta_table, shape)
        return table

    def _reopened(self, delta_table: MergeableTable, shape: Shape, new: Sequence[DataFile] = ()) -> MergeableTable:
        """I/O: opens the table again. Raises OvertakenError unless it has this *shape*, and its files with *new*."""
        table = MergeableTable.open(delta_table.folder, key="_key")
        paths = {*(file.path for file in delta_table.files), *(file.name for file in new)}
        if table is None or shape_in(table.properties) != shape or {file.path for file in table.files} != paths:
            raise self._overtaken()
        return table

    def _certain(self, merged: Merged | None) -> Merged:
        if merged is None:
            raise self._overtaken()
        return merged

    def _overtaken(self) -> OvertakenError:
        return OvertakenError(f"another process has changed {self.table}", next_step="strandline silver")

    def _evolved(self, state: SilverState, census: Census) -> tuple[Shape, list[SchemaChange]] | None:
        """Return the shape that the batch needs, and the columns to add or widen. None: Spark must tell the error."""
        settings = self.ctx.settings.silver
        try:
            return evolved_shape(settings, self.namespace, state.shape, census, state.compatibility)
        except ValueError:
            return None
