"""Purge of tombstones that no later event can need. Decision 21 has the proof."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import functions as F

from strandline.bronze.epoch import restored_at
from strandline.bronze.gaps import standing_gaps
from strandline.bronze.offsets import Committed, committed
from strandline.io.spark.races import lost_a_race
from strandline.io.tables.increments import rows_appended
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_store import VersionGone
from strandline.jobs.context import JobContext
from strandline.jobs.silver.table_names import collections_of, known_collections, table_of
from strandline.model.gap import Gap
from strandline.model.namespaces import Namespace
from strandline.model.position import (
    BEFORE_ALL,
    cluster_seconds,
    cluster_time_hex,
    position_before,
    snapshot_position,
)
from strandline.model.query import Query
from strandline.model.source_clock import clock_jump
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.silver.progress import Progress
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.purge_watermark import WatermarkBound, gap_bounds, lowest_bound
from strandline.silver.silver_table import SilverTable
from strandline.silver.sweep import SnapshotCertificate, snapshot_certificates


@dataclass(frozen=True)
class PurgeResult:
    """Result of the purge of one table."""

    rows: int = 0
    """Number of deleted rows."""
    note: str = ""
    """Reason why old rows are kept; empty: none are."""


@dataclass(frozen=True)
class TombstonePurge:
    """Purge of all silver tables that are built from one bronze table, by the state of bronze at one version."""

    ctx: JobContext
    progress_index: ProgressIndex
    through: Progress
    """Newest version of bronze."""
    bounds: tuple[WatermarkBound, ...]
    """Bounds of the purge watermark that apply to every table."""
    gaps: tuple[Gap, ...]
    _oldest_unread: dict[int, str | None] = field(default_factory=dict)

    @staticmethod
    def read(ctx: JobContext) -> TombstonePurge | None:
        """I/O: reads the offset, the running snapshot and the gaps of bronze.

        Returns:
            None if nothing was captured yet, or if ``maintenance.tombstone_retention_hours`` is null.
        """
        bronze, hours = bronze_table(ctx.settings.source.name), ctx.settings.maintenance.tombstone_retention_hours
        if hours is None or not ctx.tables.exists(bronze):
            return None
        # Read before the version: rows that are committed in between then count as unread, which is the safe side.
        last, gaps = committed(ctx.tables, bronze), standing_gaps(ctx.tables, bronze)
        if last is None:
            return None
        progress_index = ProgressIndex.read(ctx.tables, bronze)
        bounds = (stream_bound(ctx, bronze, last, hours * 3600), *snapshot_bounds(ctx, bronze, last))
        return TombstonePurge(ctx, progress_index, progress_index.bronze.newest(), bounds, gaps)

    def run(self, table: TableName) -> PurgeResult:
        """Purge one table, as `SilverTable.purge`. Skip a table that was not built from this bronze table."""
        silver, namespace = SilverTable(self.ctx.tables, table), self._namespaces.get(table)
        progress = silver.progress() if namespace is not None else None
        if namespace is None or progress is None or progress.bronze_id != self.through.bronze_id:
            return PurgeResult()
        after = self.progress_index.reached_version(namespace, progress)
        snapshots = self._snapshots if self.gaps else ()
        collections = collections_of(self.ctx, namespace)
        gaps = (bound for one in collections for bound in gap_bounds(self.gaps, one, snapshots))
        safe = lowest_bound([*self.bounds, *self._unread_bound(after), *gaps])
        try:
            removed, left = silver.purge(safe.position)
        except Exception as error:  # a session of Spark Connect may know a conflict by its condition only
            if not lost_a_race(error):
                raise
            return PurgeResult(note="a writer was at work: remove tombstones another time")
        return PurgeResult(removed, f"tombstones wait for {safe.blocked_by}" if left and safe.blocked_by else "")

    def _unread_bound(self, after: int) -> Iterator[WatermarkBound]:
        """Yield the oldest position of bronze rows that the table has not merged."""
        if after >= self.through.version:
            return
        if after not in self._oldest_unread:
            self._oldest_unread[after] = oldest_unread(self.ctx.tables, self._bronze, after, self.through.version)
        position = self._oldest_unread[after]
        if position is not None:
            yield WatermarkBound(position, "silver, which has not merged all of bronze")

    @property
    def _bronze(self) -> TableName:
        return self.progress_index.bronze.table

    @cached_property
    def _namespaces(self) -> dict[TableName, Namespace]:
        namespaces = known_collections(self.ctx, self.progress_index)
        return {table_of(self.ctx, namespace): namespace for namespace in namespaces}

    @cached_property
    def _snapshots(self) -> list[SnapshotCertificate]:
        return snapshot_certificates(self.ctx.tables, self._bronze)


def oldest_unread(tables: Tables, bronze: TableName, after: int, through: int) -> str | None:
    """I/O: returns the position before all rows that bronze got above version *after*. None: no row has one.

    It names no event: tables store it, and the token of an event has the `_id`.
    """
    try:
        unread = rows_appended(tables, bronze, after + 1, through)
    except VersionGone:  # concurrent maintenance; reading all rows gives an older position, which is safe
        unread = tables.read(bronze)
    (oldest,) = unread.agg(F.min("position")).collect()
    return None if oldest[0] is None else position_before(oldest[0], 0)


def stream_bound(ctx: JobContext, bronze: TableName, last: Committed, seconds: int) -> WatermarkBound:
    """Return the bound of the stream: whatever is read from now on is newer than the last event minus *seconds*.

    An event that is dated after this machine's time counts as one of now: a clock of the source has jumped ahead.
    """
    if restored_at(ctx.tables.commits_after(bronze, -1)) is not None:
        return WatermarkBound(BEFORE_ALL, "the first capture after bronze was restored")
    if last.last_event is None:  # an operator moved the offset
        return WatermarkBound(BEFORE_ALL, "the next event of the stream")
    now = time.time()
    if (jump := clock_jump(cluster_seconds(last.last_event), now)) is not None:
        present = position_before(cluster_time_hex(int(now), 0), seconds)
        return WatermarkBound(present, f"the time to catch up: {jump}")
    return WatermarkBound(position_before(last.last_event, seconds))


def snapshot_bounds(ctx: JobContext, bronze: TableName, last: Committed) -> Iterator[WatermarkBound]:
    """Yield the bound of a running or paused snapshot: all its chunks are read after its plan was made."""
    own = ("op", "=", "snapshot"), ("operation_type", "=", "plan"), ("snapshot_id", "=", last.snapshot_id)
    plans = Query(bronze).where(*own).select("after")
    for plan in ctx.tables.query(plans) if last.snapshot_id is not None else ():
        yield WatermarkBound(
            snapshot_position(*json.loads(plan["after"])["at"]), f"snapshot {last.snapshot_id}, which has not ended"
        )
