"""A cut at the end of a silver run: one position up to which all tables are complete, and the versions to read together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from pipelines.bronze.gaps import standing_gaps
from pipelines.control.cuts import Cut, cuts, publish
from pipelines.io.tables import Tables
from pipelines.jobs.context import JobContext
from pipelines.model.table_schemas import bronze_table
from pipelines.model.tables import TableName
from pipelines.silver.bronze_increment import BronzeIncrement, Reach
from pipelines.silver.progress_index import LastCut, ProgressIndex

_MAINTENANCE: Final = (
    *("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "DELETE"),
    "CREATE OR REPLACE TABLE AS SELECT",
)


def publish_cut(
    ctx: JobContext, before: ProgressIndex, now: ProgressIndex, increment: BronzeIncrement
) -> ProgressIndex:
    """I/O: one commit; none where no table changed since the last cut, or bronze may end in the middle of a transaction: then the next run
    that ends outside of one publishes it.

    Args:
        before: The ledger as the run over all collections found it.
        now: As it left it.
        news: What it read.

    Returns:
        *now*, with the cut.

    Effects on failure:
        The cut may be there; while the ledger is not stored, the next run publishes one of the same number, and the newer one counts.
    """
    last = before.cut
    known = -1 if last is None else last.bronze_version
    changed = [namespace for namespace, own in now.own_versions.items() if own > known]
    if not changed:
        return now
    waiting = any(own > known for own in before.own_versions.values())  # of an earlier run that published none
    bronze = bronze_table(ctx.settings.source.name)
    found = (BronzeIncrement.read(ctx.tables, bronze, known, now.complete_through) if waiting else increment).reach
    if not found.ends_outside_transaction:
        return now
    if last is not None:
        found = found.merged_with(last.position, last.read_position)
    cut = Cut(
        number=1 if last is None else last.number + 1,
        bronze=now.bronze_id,
        bronze_version=now.complete_through,
        position=found.position,
        read_position=found.read_position,
        because=tuple(_inexact_reasons(ctx, bronze, found, now)),
        tables=now.versions,
        published_at=datetime.now(UTC),
    )
    publish(ctx.tables, cut)
    return replace(now, cut=LastCut(cut.number, cut.bronze_version, cut.position, cut.read_position))


def only_maintained(tables: Tables, table: TableName, after: int | None, through: int) -> bool:
    """I/O: whether *table* was compacted, purged of tombstones or rebuilt between two versions, and nothing else; no where its log no
    longer tells."""
    if after is None or after > through:
        return False
    commits = tables.commits_between(table, after, through)
    return commits is not None and all(commit.operation in _MAINTENANCE for commit in commits)


def list_cuts(ctx: JobContext, *, limit: int) -> list[dict[str, Any]]:
    """I/O: the newest cuts, newest first, as people want them."""
    return [
        {
            "cut": cut.number,
            "cluster_time": cut.cluster_time,
            "position": cut.position,
            "bronze_version": cut.bronze_version,
            "exact": cut.exact,
            "inexact_reasons": list(cut.because),
            "tables": dict(cut.tables),
            "published_at": cut.published_at,
        }
        for cut in cuts(ctx.tables, limit=limit)
    ]


def _inexact_reasons(ctx: JobContext, bronze: TableName, found: Reach, now: ProgressIndex) -> Iterator[str]:
    """Why the tables may show more, or less, than the source held at the position that they reach."""
    if found.snapshot_runs or (found.read_position or "") > (found.position or ""):
        yield "snapshot"  # documents of a later moment stand beside those of the stream
    gaps = standing_gaps(ctx.tables, bronze)
    if any(
        gap.before > (now.healed_through or "") for gap in gaps
    ):  # events are lost, and no complete snapshot has read every collection since
        yield "gap"
    if ctx.settings.capture.update_kind == "lookup":
        yield "lookup"
    yield from sorted({reason for reasons in now.inexact_reasons.values() for reason in reasons})
