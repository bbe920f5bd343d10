"""The state of bronze that one silver run reads, and hands on to each collection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

from pyspark.sql import DataFrame

from pipelines.bronze.gaps import standing_gaps
from pipelines.io.increments import inserted
from pipelines.io.tables import Tables
from pipelines.jobs.context import JobContext
from pipelines.jobs.selection import selection_of
from pipelines.model.gap import Gap
from pipelines.model.namespaces import Namespace
from pipelines.model.table_schemas import bronze_table
from pipelines.model.tables import TableName
from pipelines.model.update_kinds import updates_in
from pipelines.silver.bronze_increment import BronzeIncrement, namespaces_that_ended
from pipelines.silver.latest import as_changes
from pipelines.silver.progress_index import ProgressIndex
from pipelines.silver.sweep import Sweep
from pipelines.silver.typed_table import Progress


@dataclass(frozen=True)
class BronzeRange:
    """What of bronze one run over all collections looks at."""

    tables: Tables
    bronze: TableName
    progress_index: ProgressIndex
    through: Progress
    increment: BronzeIncrement
    updates: frozenset[str]
    """How updates ever came into it (`UpdateKind`)."""
    tables_at_once: int = 1
    """How many silver tables are merged at the same time."""
    _rows: dict[int, DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)
    _asking: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def catch_up(self, namespace: Namespace, progress: Progress | None, after: int) -> tuple[int, BronzeIncrement]:
        """After which version a table that is complete up to *after* begins, and what is new from there on. One that was dropped or
        restored begins anew, from bronze itself: the files of the commits that it has missed may be gone. So does one that is new although
        its name was dropped or renamed before: rows of an earlier life may come late.

        Args:
            progress: As the table itself notes it.
        """
        is_new = self.progress_index.own_progress(progress) < 0 <= after
        if after >= self.increment.after and not (is_new and namespace in self._ended):
            return after, self.increment
        return -1, BronzeIncrement.read(self.tables, self.bronze, -1, self.through.version)

    @cached_property
    def _ended(self) -> frozenset[Namespace]:
        """Names that ended before the run. All of bronze is read only where a release that did not note them wrote the ledger."""
        if self.progress_index.ended_names is not None:
            return self.progress_index.ended_names
        return namespaces_that_ended(self.tables, self.bronze)

    @cached_property
    def _gaps(self) -> tuple[Gap, ...]:
        return standing_gaps(self.tables, self.bronze, self.through.version)

    def gaps_of(self, namespace: Namespace) -> tuple[Gap, ...]:
        """Across which no patch of a collection is folded."""
        return tuple(gap for gap in self._gaps if gap.concerns(str(namespace)))

    @property
    def _exact_updates(self) -> bool:
        """Whether every document of an update is the one that it left."""
        return "lookup" not in self.updates

    def rows(self, *, after: int = -1) -> DataFrame:
        """Changes that bronze got after version *after*; by default all. I/O: once for all tables, because `inserted` opens every file."""
        with self._asking:
            if after not in self._rows:
                self._rows[after] = inserted(self.tables, self.bronze, after + 1, self.through.version)
            return as_changes(self._rows[after], exact_updates=self._exact_updates)


def updates_of(ctx: JobContext) -> frozenset[str]:
    """I/O: how updates ever came into bronze, and how they do now."""
    known = updates_in(ctx.tables.properties(bronze_table(ctx.settings.source.name)))
    return known | {ctx.settings.capture.update_kind}


def sweeps_of(
    ctx: JobContext, namespace: Namespace, of: BronzeRange, increment: BronzeIncrement, after: int
) -> Iterator[Sweep]:
    """What each snapshot that was completed after version *after* says of the collection.

    A collection that the filters have come to leave out stays as it was, and one that is gone as `on_drop` says.
    """
    if not selection_of(ctx.settings.capture).admits(*namespace):
        return
    for snapshot in increment.sweeping(namespace, after):
        position, absence_position = snapshot.sweep_position(namespace), snapshot.absence_position(namespace)
        keeps = ctx.settings.silver.on_drop == "keep" and namespace not in snapshot.planned
        if position is not None and absence_position is not None and not keeps:
            yield Sweep(snapshot.read_keys(ctx.tables, of.bronze, namespace), position, absence_position)
