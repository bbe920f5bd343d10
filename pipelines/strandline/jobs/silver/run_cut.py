"""Cuts: the position up to which all silver tables are complete, and the table versions to read together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from strandline.bronze.gaps import standing_gaps
from strandline.control.cut_publication import publish, writer_of_cuts
from strandline.control.cuts import Cut
from strandline.io.delta_log.commits import REPLACEMENT
from strandline.io.tables.table_store import TableStore
from strandline.jobs.lake_context import PipelineContext, tables_here
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.children import children_of_cut
from strandline.jobs.silver.table_ends import TableEnd, holds_rows_above
from strandline.model.tables import TableName
from strandline.silver.bronze_increment import Reach
from strandline.silver.progress_index import LastCut, ProgressIndex

_MAINTENANCE: Final = ("DELETE", REPLACEMENT, "DROP FEATURE", "UPGRADE PROTOCOL")


def writer_of(ctx: PipelineContext) -> TableStore:
    """Return the tables through which ``control.cuts`` is written. I/O: creates the table if it does not exist."""
    return writer_of_cuts(ctx.tables, tables_here(ctx.settings))


def publish_cut(
    ctx: PipelineContext,
    bronze: BronzeState,
    index: ProgressIndex,
    ends: Sequence[TableEnd],
    writer: Callable[[], TableStore],
) -> ProgressIndex:
    """Publish a cut at the end of a silver run over all collections.

    I/O: writes one commit to ``control.cuts``; none if no table has changed since the last cut. None either if bronze
    may end inside a transaction: the next run that ends outside of one publishes the cut.

    Args:
        ctx: The pipeline.
        bronze: The state of bronze that the run has merged.
        index: The progress index at the end of the run.
        ends: The tables that the run has merged. *index* names their versions.
        writer: Returns the tables through which ``control.cuts`` is written. Called if there is a cut.

    Returns:
        *index* with the new cut; *index* itself if none was published.

    Effects on failure:
        The cut may be published although the progress index is not stored. Then the next run publishes a cut with the
        same number, and the newer one counts.
    """
    last = bronze.progress_index.cut
    last_version = -1 if last is None else last.bronze_version
    if not any(own.version > last_version for own in index.own.values()):
        return index
    # An earlier run changed tables without a cut: this one reaches back to the last cut.
    is_overdue = any(own.version > last_version for own in bronze.progress_index.own.values())
    reach = (bronze.increment_after(last_version) if is_overdue else bronze.increment).reach
    if not reach.ends_outside_transaction:
        return index
    if last is not None:
        reach = reach.merged_with(last.position, last.read_position)
    cut = Cut(
        number=1 if last is None else last.number + 1,
        bronze=index.bronze.id,
        bronze_version=index.complete_through,
        position=reach.position,
        read_position=reach.read_position,
        inexact_reasons=tuple(_inexact_reasons(ctx, bronze.table, reach, index, ends)),
        tables={**index.versions, **children_of_cut(ctx, index.versions)},
        published_at=datetime.now(UTC),
    )
    publish(writer(), cut)
    return replace(index, cut=LastCut(cut.number, cut.bronze_version, cut.position, cut.read_position))


def only_maintained(tables: TableStore, table: TableName, after: int | None, through: int) -> bool:
    """Return True if only maintenance commits changed *table* between two versions.

    Maintenance is compaction, VACUUM, table properties, a MERGE of no row, the purge of tombstones and a rebuild.

    I/O: reads the Delta log.

    Args:
        tables: The lake.
        table: The table.
        after: Version after which commits are checked; None: unknown, so the result is False.
        through: Last version that is checked.

    Returns:
        True also if the log no longer holds all these commits: then the version *after* can no longer be read.
    """
    if after is None or after > through:
        return False
    commits = tables.commits_between(table, after, through)
    return commits is None or all(commit.keeps_rows or commit.operation in _MAINTENANCE for commit in commits)


def _inexact_reasons(
    ctx: PipelineContext, bronze: TableName, reach: Reach, index: ProgressIndex, ends: Sequence[TableEnd]
) -> Iterator[str]:
    """Yield the reasons why the tables may differ from the source at the cut's position."""
    if reach.snapshot_runs or (reach.read_position or "") > (reach.position or ""):
        yield "snapshot"  # the snapshot has read documents at a later cluster time than the stream has reached
    # Read again: a gap that was recorded during the run counts as well.
    if index.unhealed(standing_gaps(ctx.tables, bronze)):
        yield "gap"  # events are lost, and no snapshot has read the collections since
    newest = max(reach.position or "", reach.read_position or "")
    if index.merged_before > newest or any(holds_rows_above(ctx.tables, end, newest) for end in ends):
        yield "ahead"  # rows that this bronze does not have yet, or that another silver run has merged meanwhile
    if ctx.settings.capture.update_kind == "lookup":
        yield "lookup"
    yield from sorted({reason for reasons in index.inexact_reasons.values() for reason in reasons})
