"""Compaction of bronze: events before a horizon go, but for what every reader needs (`bronze/compaction.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from strandline.bronze.compact_files import removable_rows
from strandline.bronze.compaction import CompactionRule, read_rule
from strandline.bronze.offsets import Committed, committed, ends
from strandline.io.delta_log.plain_protocol import make_plain
from strandline.io.delta_log.sorted_rewrite import remove_rows
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.table_store import TableStore
from strandline.jobs.context import JobContext
from strandline.jobs.maintenance.compaction_by_spark import count_removable, remove_by_spark
from strandline.jobs.maintenance.tombstone_purge import PurgeResult, oldest_unread, snapshot_bounds, stream_bound
from strandline.jobs.silver.history import tables_of
from strandline.jobs.silver.table_names import collections_of, known_collections, table_of
from strandline.model.horizon import Horizon
from strandline.model.namespaces import Namespace
from strandline.model.position import cluster_seconds
from strandline.model.tables import TableName
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.purge_watermark import WatermarkBound, lowest_bound
from strandline.silver.silver_table import SilverTable

_DAY: Final = 24 * 3600
_STEP_SECONDS: Final = _DAY
"""Least rise of the horizon, in seconds: every compaction reads the keys of all rows before it."""
_AT_WORK: Final = "a writer was at work: compact its events another time"


def compact_bronze(ctx: JobContext, bronze: TableName, *, dry_run: bool = False) -> PurgeResult:
    """Compact the events of bronze that are older than ``maintenance.bronze_retention_days``.

    The horizon is lower while a snapshot runs, or while a silver or history table has not merged older rows. It rises
    by a day at least.

    I/O: reads keys and positions; stores the horizon, then removes rows in one commit or several. Where delta-rs writes
    bronze, these commits are no changes of data. Spark deletes the rows.

    Effects on failure: after each commit bronze is whole. Calling again is safe.

    Args:
        ctx: The pipeline.
        bronze: The table, which exists.
        dry_run: Count only.
    """
    days, last = ctx.settings.maintenance.bronze_retention_days, committed(ctx.tables, bronze)
    if days is None or last is None:
        return PurgeResult()
    bound = lowest_bound(_bounds(ctx, bronze, last, days * _DAY))
    note = f"events wait for {bound.blocked_by}" if bound.blocked_by else ""
    horizon, earlier = Horizon(bound.position, _oldest_batch(ctx, bronze, last, days)), _horizon_of(ctx, bronze)
    if earlier is not None and cluster_seconds(horizon.position) < cluster_seconds(earlier.position) + _STEP_SECONDS:
        return PurgeResult(note=note)
    store = ctx.for_capture().tables
    rule = _rule(ctx, store, bronze, horizon)
    if isinstance(store, DeltaRsTables):
        rows = _compact_here(store, bronze, rule, dry_run=dry_run)
    elif dry_run:
        rows = count_removable(ctx.tables, bronze, rule)
    else:
        rows = remove_by_spark(ctx.tables, bronze, rule)
    return PurgeResult(rows or 0, _AT_WORK if rows is None else note)


def _compact_here(store: DeltaRsTables, bronze: TableName, rule: CompactionRule, *, dry_run: bool) -> int | None:
    """Return the number of rows. None: another commit came first, at least once."""
    with table_errors(bronze):
        folder = store.folder(bronze)
        if not dry_run:
            make_plain(folder)
        gone = removable_rows(folder, rule)
        if dry_run or not gone:
            return sum(int(rows.sum()) for rows in gone.values())
        store.set_properties(bronze, rule.horizon.properties)  # first: from now on bronze may lack earlier events
        steps = list(remove_rows(folder, gone))
    return None if None in steps else sum(step[0] for step in steps if step is not None)


def _bounds(ctx: JobContext, bronze: TableName, last: Committed, seconds: int) -> Iterator[WatermarkBound]:
    yield stream_bound(ctx, bronze, last, seconds)
    yield from snapshot_bounds(ctx, bronze, last)
    progress_index = ProgressIndex.read(ctx.tables, bronze)
    through = progress_index.bronze.newest()
    reached = [
        progress_index.reached_version(namespace, table.progress())
        for namespace in known_collections(ctx, progress_index)
        for table in tables_of(ctx, namespace)
    ]
    after = min((version for version in reached if version >= 0), default=through.version)
    if after < through.version:
        oldest = oldest_unread(ctx.tables, bronze, after, through.version)
        if oldest is not None:
            yield WatermarkBound(oldest, "silver, which has not merged all of bronze")


def _oldest_batch(ctx: JobContext, bronze: TableName, last: Committed, days: int) -> int:
    """Return the newest batch that was captured before the horizon, by this machine's clock; 0: none."""
    before = datetime.now(UTC) - timedelta(days=days)
    old = ends(bronze).where(("captured_at", "<", before), ("epoch", "=", last.epoch))
    (newest,) = ctx.tables.query(old.aggregate(batch=("max", "batch")))
    return min(newest["batch"] or 0, last.batch - 1)


def _horizon_of(ctx: JobContext, bronze: TableName) -> Horizon | None:
    return Horizon.of(ctx.tables.properties(bronze))


def _rule(ctx: JobContext, store: TableStore, bronze: TableName, horizon: Horizon) -> CompactionRule:
    watermarks = dict[Namespace, str]()
    for holder in known_collections(ctx, ProgressIndex.read(ctx.tables, bronze)):
        watermark = SilverTable(ctx.tables, table_of(ctx, holder)).purge_watermark()
        watermarks |= dict.fromkeys(collections_of(ctx, holder), watermark)
    silver = ctx.settings.silver
    return read_rule(store, bronze, horizon, watermarks, drops=silver.ends_drops, renames=silver.ends_renames)
