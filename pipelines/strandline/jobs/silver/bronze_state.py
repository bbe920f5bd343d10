"""The state of bronze that a silver run or a rebuild reads once and shares with all its collections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from strandline.bronze.gaps import standing_gaps
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.lake_context import PipelineContext, tables_to_merge
from strandline.jobs.selection import selection_of
from strandline.jobs.silver.bronze_rows import BronzeRows
from strandline.jobs.silver.table_names import holder_of
from strandline.model.gap import Gap
from strandline.model.horizon import Horizon
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.model.update_kinds import updates_in
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.incarnations import Arrival, Incarnations, arrivals_at
from strandline.silver.latest import as_changes
from strandline.silver.progress import Progress
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.sweep import Sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class BronzeState:
    """Bronze up to one version, and the progress that silver had made when the run began.

    Safe to share between threads. The gaps, certificates and rows are read when they are first needed.
    """

    ctx: PipelineContext
    table: TableName
    progress_index: ProgressIndex
    """The progress index at the start of the run."""
    through: Progress
    """Id of the bronze table, and the last version that the run reads."""
    updates: frozenset[str]
    """Every `UpdateKind` that bronze has ever received."""
    near: DeltaRsTables | None
    """The tables, if this process reads bronze's increment. None: Spark does, on a cluster or where only Spark can."""
    _rows: dict[int, DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)
    _rows_lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    _direct_rows: dict[int, BronzeRows | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _increments: dict[int, BronzeIncrement] = field(default_factory=dict, init=False, repr=False, compare=False)
    _increment_lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    @staticmethod
    def at(ctx: PipelineContext, progress_index: ProgressIndex, through: Progress) -> BronzeState:
        """Return the state of bronze at *through*. I/O: reads bronze's properties."""
        table = bronze_table(ctx.settings.source.name)
        updates = updates_in(ctx.tables.properties(table)) | {ctx.settings.capture.update_kind}
        return BronzeState(ctx, table, progress_index, through, updates, tables_to_merge(ctx.settings, "auto"))

    @staticmethod
    def read(ctx: PipelineContext, progress_index: ProgressIndex, through: Progress) -> BronzeState:
        """I/O: as `at`; reads the bronze increment above *progress_index*."""
        state = BronzeState.at(ctx, progress_index, through)
        _ = state.increment  # read here, before the collections share it between threads
        return state

    def is_readable(self) -> bool:
        """I/O: returns True if all rows up to the version can be read. Reads them, unless the version is the newest."""
        if self.through.version == self.ctx.tables.version(self.table) or self._near_rows(-1) is not None:
            return True
        from strandline.io.tables.increments import is_readable  # imports PySpark

        return is_readable(self.ctx.with_spark().tables, self.table, self.through.version)

    @property
    def direct(self) -> DeltaRsTables | None:
        """The tables, as this process reads and writes them. None: Spark merges every row."""
        return self.near if self.ctx.settings.silver_engine == "auto" else None

    @property
    def has_news(self) -> bool:
        """True if bronze has commits that no run over all collections has merged."""
        return self.progress_index.complete_through < self.through.version

    @cached_property
    def increment(self) -> BronzeIncrement:
        """Changes since the version that every silver table has reached."""
        return self.increment_after(self.progress_index.complete_through)

    def increment_after(self, after: int) -> BronzeIncrement:
        """Return the changes above version *after*. I/O: once per *after*."""
        if after >= self.through.version:
            return BronzeIncrement(after)
        with self._increment_lock:
            if after not in self._increments:
                self._increments[after] = self._read_increment(after)
            return self._increments[after]

    def _read_increment(self, after: int) -> BronzeIncrement:
        if (rows := self._near_rows(after)) is not None:
            return rows.increment
        return BronzeIncrement.of(self._inserted(after), self.ctx.tables, self.table, after)

    def _near_rows(self, after: int) -> BronzeRows | None:
        if self.near is not None and after not in self._direct_rows:
            self._direct_rows[after] = BronzeRows.read(self.near, self.table, after, self.through.version)
        return self._direct_rows.get(after)

    def direct_rows(self, increment: BronzeIncrement) -> BronzeRows | None:
        """Return the rows of an *increment* of this state. None: this process does not read them."""
        return self._direct_rows.get(increment.after)

    @cached_property
    def renamed_from(self) -> Mapping[Namespace, Mapping[Namespace, str]]:
        """Earlier names of each renamed collection, and the position at which each was given up."""
        return self.increment.renamed_from(self.progress_index.renamed_from)

    def learned(self, earlier: Incarnations, namespace: Namespace, increment: BronzeIncrement) -> Incarnations:
        """Return *earlier* with the facts of *increment* about the name.

        I/O: reads all of bronze if the increment holds a rename to the name: other names tell which rows came.
        """
        arrivals: list[Arrival] = []
        if renames := [event for event in increment.events if event.to == namespace]:
            everything = self.increment_after(-1)
            arrivals = arrivals_at(renames, everything.events, everything.changed)
        return earlier.after(increment.events, namespace, increment.seen(namespace), arrivals)

    def increment_for(self, namespace: Namespace, progress: Progress | None, after: int) -> tuple[int, BronzeIncrement]:
        """Return the last version that a table has merged, and the increment that it needs.

        The table reads all of bronze, after version -1, in two cases. It was dropped or restored: the files of the
        commits that it lacks may be gone. Or it is new and its name was dropped or renamed before: rows of an earlier
        incarnation may come late.

        I/O: reads bronze in these two cases.

        Args:
            namespace: The collection, or the tenant table.
            progress: Progress that the table itself has stored; None: there is no table.
            after: Version up to which the table is complete, by the progress index.
        """
        is_new = self.progress_index.own_version(namespace, progress) < 0 <= after
        if after >= self.increment.after and not (is_new and self._has_ended(namespace)):
            return after, self.increment
        return -1, self.increment_after(-1)

    def _has_ended(self, namespace: Namespace) -> bool:
        """Return True if the collection, or one of the tenant table, was dropped or renamed before."""
        ended = self.progress_index.ended_names
        if not namespace.is_tenant_table:
            return namespace in ended
        return any(holder_of(self.ctx.settings.silver, name) == namespace for name in ended)

    @cached_property
    def all_gaps(self) -> tuple[Gap, ...]:
        """Gaps of all collections, without those that were captured again. I/O: reads bronze once."""
        return standing_gaps(self.ctx.tables, self.table, self.through.version)

    def healed_collections(self) -> dict[str, str]:
        """Return the position up to which the increment's snapshots heal gaps, by collection with a gap of its own."""
        snapshots = [snapshot for _, snapshot in self.increment.completed]
        names = {gap.collection for gap in self.all_gaps if gap.collection is not None} if snapshots else ()
        return {name: max(snap.sweep_position(Namespace.parse(name)) or "" for snap in snapshots) for name in names}

    def gaps_of(self, namespace: Namespace) -> tuple[Gap, ...]:
        """Return the gaps across which no patch of the collection may be folded. I/O: reads bronze once per run."""
        return tuple(gap for gap in self.all_gaps if gap.affects(str(namespace)))

    @cached_property
    def horizon(self) -> Horizon | None:
        """Position up to which bronze was compacted. None: it never was. I/O: reads bronze's properties."""
        return Horizon.of(self.ctx.tables.properties(self.table))

    @property
    def exact_updates(self) -> bool:
        """True if every update came with exactly the document that it left."""
        return "lookup" not in self.updates

    def rows(self, *, after: int = -1) -> DataFrame:
        """Return the changes in bronze above version *after*; -1: all of them.

        I/O: once per *after* for all tables, because `inserted` opens every file.
        """
        return as_changes(self._inserted(after), exact_updates=self.exact_updates)

    def _inserted(self, after: int) -> DataFrame:
        from strandline.io.tables.increments import rows_appended  # imports PySpark

        with self._rows_lock:
            if after not in self._rows:
                tables = self.ctx.with_spark().tables
                self._rows[after] = rows_appended(tables, self.table, after + 1, self.through.version)
            return self._rows[after]


def sweeps_of(ctx: PipelineContext, namespace: Namespace, increment: BronzeIncrement, after: int) -> Iterator[Sweep]:
    """Yield one sweep of the collection for each snapshot that was completed above version *after*.

    Nothing is swept in a collection that the filters now exclude, nor in a missing one with ``on_drop: keep``.
    """
    if not selection_of(ctx.settings.capture).admits(*namespace):
        return
    for snapshot in increment.sweeping(namespace, after):
        position, absence_position = snapshot.sweep_position(namespace), snapshot.absence_position(namespace)
        is_kept = ctx.settings.silver.on_drop == "keep" and namespace not in snapshot.planned
        if position is not None and absence_position is not None and not is_kept:
            yield Sweep(snapshot.snapshot_id, namespace, position, absence_position)
