"""Tombstones of silver that nothing can need any more are removed. Which, and why none is missed: docs/decisions/0021-tombstones.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import functions as F

from pipelines.bronze.gaps import standing_gaps
from pipelines.bronze.lineage import restored_at
from pipelines.bronze.offsets import Committed, committed
from pipelines.io.increments import inserted
from pipelines.io.versions import VersionGone
from pipelines.jobs.context import JobContext
from pipelines.jobs.silver.history import known_collections
from pipelines.jobs.silver.table_names import table_of
from pipelines.model.gap import Gap
from pipelines.model.namespaces import Namespace
from pipelines.model.position import BEFORE_ALL, earlier, snapshot_position
from pipelines.model.table_schemas import bronze_table
from pipelines.model.tables import TableName
from pipelines.silver.progress_index import ProgressIndex
from pipelines.silver.purge_watermark import WatermarkBound, gap_bounds, lowest_bound
from pipelines.silver.silver_table import SilverTable
from pipelines.silver.sweep import SnapshotCertificate, snapshot_certificates
from pipelines.silver.typed_table import Progress


@dataclass(frozen=True)
class Purged:
    """What was done to one table."""

    rows: int = 0
    note: str = ""
    """What keeps newer tombstones that are old enough."""


@dataclass(frozen=True)
class Purge:
    """One look at a version of bronze, for all silver tables that are built from it."""

    ctx: JobContext
    bronze: TableName
    through: Progress
    bounds: tuple[WatermarkBound, ...]
    """What holds for every table."""
    gaps: tuple[Gap, ...]
    _unread: dict[int, str | None] = field(default_factory=dict)

    @staticmethod
    def of(ctx: JobContext) -> Purge | None:
        """I/O: reads where the stream of bronze stands, its running snapshot, its gaps. None: nothing was captured, or tombstones stay."""
        bronze, hours = bronze_table(ctx.settings.source.name), ctx.settings.maintenance.tombstone_retention_hours
        if hours is None or not ctx.tables.exists(bronze):
            return None
        # Before the version: what lands between the two looks is then news, and no later event is taken for committed.
        last, gaps = committed(ctx.tables, bronze), standing_gaps(ctx.tables, bronze)
        if last is None:
            return None
        through = Progress(ctx.tables.id(bronze), ctx.tables.version(bronze))
        bounds = (_stream(ctx, bronze, last, hours * 3600), *_snapshot(ctx, bronze, last))
        return Purge(ctx, bronze, through, bounds, gaps)

    def run(self, table: TableName) -> Purged:
        """I/O: as `SilverTable.purge`; nothing happens to what is no collection's table, or is built from another bronze."""
        silver, namespace = SilverTable(self.ctx.tables, table), self._namespaces.get(table)
        progress = silver.progress() if namespace is not None else None
        if namespace is None or progress is None or progress.bronze_id != self.through.bronze_id:
            return Purged()
        after = self._progress_index.reached_version(namespace, progress)
        gaps = gap_bounds(self.gaps, namespace, self._snapshots if self.gaps else ())
        safe = lowest_bound([*self.bounds, *self._news(after), *gaps])
        removed, left = silver.purge(safe.position)
        return Purged(removed, f"tombstones wait for {safe.blocked_by}" if left and safe.blocked_by else "")

    def _news(self, after: int) -> Iterator[WatermarkBound]:
        """What bronze holds and the table does not."""
        if after >= self.through.version:
            return
        if after not in self._unread:
            try:
                unread = inserted(self.ctx.tables, self.bronze, after + 1, self.through.version)
            except VersionGone:  # bronze was compacted beside; more rows than asked for keep more tombstones
                unread = self.ctx.tables.read(self.bronze)
            (oldest,) = unread.agg(F.min("position")).collect()
            self._unread[after] = oldest[0]
        position = self._unread[after]
        if position is not None:
            yield WatermarkBound(position, "silver, which has not merged all of bronze")

    @cached_property
    def _progress_index(self) -> ProgressIndex:
        return ProgressIndex.read(self.ctx.tables, self.through.bronze_id)

    @cached_property
    def _namespaces(self) -> dict[TableName, Namespace]:
        known = known_collections(self.ctx, self._progress_index)
        return {table_of(self.ctx, namespace): namespace for namespace in known}

    @cached_property
    def _snapshots(self) -> list[SnapshotCertificate]:
        return snapshot_certificates(self.ctx.tables, self.bronze)


def _stream(ctx: JobContext, bronze: TableName, last: Committed, seconds: int) -> WatermarkBound:
    """Events come behind the committed token. What is read from the source from now on, or just now, is younger than *seconds*."""
    if restored_at(ctx.tables.commits_after(bronze, -1)) is not None:
        return WatermarkBound(BEFORE_ALL, "the first capture after bronze was restored")
    if last.last_event is None:  # the offset was set by hand
        return WatermarkBound(BEFORE_ALL, "the next event of the stream")
    return WatermarkBound(earlier(last.last_event, seconds))


def _snapshot(ctx: JobContext, bronze: TableName, last: Committed) -> Iterator[WatermarkBound]:
    """Chunks of a snapshot that has not ended, paused ones too, are read after its plan was made; none before that is committed."""
    is_plan = (
        (F.col("op") == "snapshot") & (F.col("operation_type") == "plan") & (F.col("snapshot_id") == last.snapshot_id)
    )
    plans = ctx.tables.read(bronze).where(is_plan).select("after").collect() if last.snapshot_id is not None else []
    for plan in plans:
        yield WatermarkBound(
            snapshot_position(*json.loads(plan["after"])["at"]), f"snapshot {last.snapshot_id}, which has not ended"
        )
