"""A small batch of one collection, merged in this process. No Spark job."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from strandline.io.delta_log.mergeable_table import MOST_BYTES, ONLY_SPARK, MergeableTable
from strandline.io.spark.conflicts import OvertakenError
from strandline.io.tables.delta_rs_tables import table_errors
from strandline.io.tables.table_swap import CHANGE_FEED
from strandline.io.telemetry.metrics import count_alone
from strandline.io.telemetry.tracing import annotate
from strandline.jobs.context import JobContext
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.column_changes import evolved_shape
from strandline.jobs.silver.small_increment import SmallIncrement
from strandline.model.lake_format import FORMAT, format_of
from strandline.model.merge_rule import Merged
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.model.tables import TableName
from strandline.silver.fold.patches import CURRENT
from strandline.silver.layout import is_laid_out
from strandline.silver.merge_rule import merge_rule
from strandline.silver.schema.census import Census
from strandline.silver.silver_table import HAS_PATCHES, WITH_STATISTICS, OpenedTable, SilverTable
from strandline.silver.small_batch import changes_of, profile, state_of, typed, without_deleted_values
from strandline.silver.small_fold import census_of_folded, folded_keys, folded_state
from strandline.silver.table_properties import are_applied


@dataclass(frozen=True)
class SmallBatchRun:
    """Merges the changes of one collection, if they are a small batch (decision 71)."""

    ctx: JobContext
    namespace: Namespace
    table: TableName
    bronze: BronzeState

    def run(self) -> Merged | None:
        """Merge the collection's new rows, then store the progress.

        I/O: reads the silver table's files; writes one commit with rows, then one with the progress. Idempotent.

        Returns:
            Numbers of changed rows. None: Spark must merge them, because they are no small batch or because it has
            errors or dead letters to report. Nothing was changed.

        Raises:
            OvertakenError: Another commit came first. Nothing was changed.
            LakeUnavailable: The lake cannot be read or written.
        """
        small = self.bronze.small
        if small is None:
            return None
        with table_errors(self.table):
            try:
                stored = MergeableTable.open(small.tables.folder(self.table), key="_key")
                return None if stored is None else self._merge(small, stored)
            except ONLY_SPARK:
                return None

    def _merge(self, small: SmallIncrement, stored: MergeableTable) -> Merged | None:
        """Do the work of `run` on an opened table."""
        opened = self._opened(stored)
        after = None if opened is None else self._reached(opened)
        if opened is None or after is None or after < small.increment.after:
            return None
        changes = changes_of(small.rows, self.namespace, after, exact_updates=self.bronze.exact_updates)
        if not changes.num_rows or changes["key"].null_count:
            return None
        keys = sorted(changes["key"].unique().to_pylist())
        files = stored.files_with(keys)
        if sum(file.size for file in files) > MOST_BYTES:
            return None
        found = profile(changes, max_depth=self.ctx.settings.silver.max_depth)
        annotate(rows_in=found.changes)
        count_alone(str(self.table), found.alone)
        state, properties = state_of(changes), self.bronze.through.properties
        learned = self.bronze.learned(opened.incarnations, self.namespace, small.increment)
        if learned != opened.incarnations:
            properties |= SilverTable.incarnation_properties(learned)
        if opened.has_patches or found.holds_patches:
            state = self._folded(changes, state, stored.rows_with(keys, CURRENT), found.census)
            properties |= {HAS_PATCHES: "true"}
        new = self._typed(opened, found.census, state)
        if new is None or not set(new.schema.names) <= set(stored.schema.names):
            return None
        columns = sorted({*new.schema.names, "_pending"})
        watermark = SilverTable.purge_watermark_in(stored.properties)
        rule = merge_rule(columns, deletes=self.ctx.settings.silver.deletes, watermark=watermark)
        merged = stored.merge(stored.conformed(new, columns), rule, files)
        if merged is None:
            raise OvertakenError(f"another process has changed {self.table}", next_step="strandline silver")
        small.tables.set_properties(self.table, properties)  # a crash before this only repeats the MERGE
        return merged

    def _folded(self, changes: pa.Table, state: pa.Table, current: pa.Table, census: Census) -> pa.Table:
        """Fold updates without their document onto *current* rows. Adds the folded documents to *census*."""
        keys = folded_keys(changes, current)
        state = folded_state(changes, state, current, keys, self.bronze.gaps_of(self.namespace))
        census.merge(census_of_folded(state, keys, max_depth=self.ctx.settings.silver.max_depth))
        return state

    def _typed(self, opened: OpenedTable, census: Census, state: pa.Table) -> pa.Table | None:
        """Return the rows to merge. None: Spark must change columns first, or record poison."""
        shape = self._unchanged_shape(opened, census)
        if shape is None or census.holds_poison:
            return None
        return typed(without_deleted_values(state) if self._deletes_hard else state, shape)

    @property
    def _deletes_hard(self) -> bool:
        return self.ctx.settings.silver.deletes == "hard"

    def _opened(self, stored: MergeableTable) -> OpenedTable | None:
        """Return the table's metadata. None: Spark must prepare the table, or merge it."""
        settings, properties = self.ctx.settings, stored.properties
        opened = OpenedTable.of(properties)
        is_ours = SilverTable.is_fed_by(self.table, properties, str(self.namespace), settings.source.name)
        is_ready = (
            is_ours
            and format_of(properties) == FORMAT
            and properties.get(CHANGE_FEED) == "true"
            and opened.compatibility == "portable"
            and not opened.incarnations.lives.boundaries
            and not opened.incarnations.arrivals
            and is_laid_out(properties, settings.silver.layout_of(str(self.namespace)), bookkeeping=WITH_STATISTICS)
            and are_applied(properties, settings.silver.properties_of(str(self.namespace)))
        )
        return opened if is_ready else None

    def _reached(self, opened: OpenedTable) -> int | None:
        """Return the bronze version that the table has reached. None: it has no progress, or has all of bronze."""
        index = self.bronze.progress_index
        reached = index.reached_version(self.namespace, opened.progress)
        is_known = index.own_version(self.namespace, opened.progress) >= 0
        return reached if is_known and reached < self.bronze.through.version else None

    def _unchanged_shape(self, opened: OpenedTable, census: Census) -> Shape | None:
        """Return the shape that the batch is decoded into. None: it needs new or wider columns."""
        settings = self.ctx.settings.silver
        try:
            shape, changes = evolved_shape(settings, self.namespace, opened.shape, census, opened.compatibility)
        except ValueError:
            return None
        return None if changes else shape
