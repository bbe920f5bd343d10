"""Snapshots as bronze remembers them: what was planned, what has landed, and whether that is everything."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.errors import ConfigurationError
from pipelines.jobs.context import JobContext
from pipelines.jobs.snapshot.plan import Plan, is_held, paused_seconds
from pipelines.model.table_schemas import bronze_table
from pipelines.model.timestamps import utc
from pipelines.source.ranges import covers_all_ids


@dataclass(frozen=True)
class SnapshotState:
    """One snapshot."""

    snapshot_id: str
    kind: str
    """``initial``, ``incremental`` or ``blocking``."""
    state: str
    """``running``, ``paused``, ``completed``, ``stopped``, or ``replaced``: it has not ended, and a later one has begun."""
    begun_at: datetime
    completed_at: datetime | None
    collections: int
    chunks: int
    landed: int
    discarded: int
    documents: int
    paused_seconds: float
    """All its pauses together; one that goes on counts until now."""


@dataclass(frozen=True)
class CollectionCheck:
    """The certificate of one collection of a snapshot, held against bronze."""

    collection: str
    tiles: bool
    """The planned chunks reach from MinKey to MaxKey without a hole or an overlap."""
    chunks: int
    missing: int
    """Chunks that have not landed."""
    discarded: int
    """Chunks of a collection that was gone."""
    stopped: int
    """Chunks that a signal took out."""
    documents: int
    """As the chunks' manifests count them."""
    rows: int
    """As they stand in bronze."""

    @property
    def holds(self) -> bool:
        return self.tiles and not self.missing and not self.stopped and self.documents == self.rows


def list_snapshots(ctx: JobContext) -> list[SnapshotState]:
    """I/O: reads the snapshots' control rows; newest first.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    by_id: dict[str, list[Row]] = defaultdict(list)
    for row in _control_rows(ctx):
        by_id[row["snapshot_id"]].append(row)
    planned = [(rows, plan) for rows in by_id.values() for plan in rows if plan["operation_type"] == "plan"]
    planned.sort(key=lambda pair: pair[1]["captured_at"], reverse=True)
    return [_state(rows, plan, newest=number == 0) for number, (rows, plan) in enumerate(planned)]


def verify_snapshot(ctx: JobContext, snapshot_id: str | None = None) -> list[CollectionCheck]:
    """I/O: reads a snapshot's control rows and counts its documents in bronze.

    Args:
        snapshot_id: Default: the newest.

    Raises:
        ConfigurationError: There is no such snapshot.
    """
    known = list_snapshots(ctx)
    wanted = snapshot_id or (known[0].snapshot_id if known else None)
    if wanted not in {state.snapshot_id for state in known}:
        raise ConfigurationError(f"there is no snapshot {wanted or 'yet'}", next_step="strandline snapshot list")
    control = [row for row in _control_rows(ctx) if row["snapshot_id"] == wanted]
    reads = ctx.tables.read(bronze_table(ctx.settings.source.name)).where(
        (F.col("snapshot_id") == wanted) & (F.col("op") == "r")
    )
    rows = {row["chunk"]: row["count"] for row in reads.groupBy("chunk").count().collect()}
    return checks(control, rows)


def checks(control: Sequence[Row], rows: dict[int, int]) -> list[CollectionCheck]:
    """The certificate of each collection. Pure.

    Args:
        control: All control rows of one snapshot.
        rows: READ rows in bronze by chunk.
    """
    plan = next(Plan.from_json(row["after"]) for row in control if row["operation_type"] == "plan")
    landed = {
        row["chunk"]: json.loads(row["after"])["documents"] for row in control if row["operation_type"] == "chunk"
    }
    out = {row["chunk"]: json.loads(row["after"]) for row in control if row["operation_type"] == "discarded"}
    stopped = {number for number, reason in out.items() if "stopped_by" in reason} - landed.keys()
    discarded = out.keys() - stopped
    found = []
    for collection in sorted({chunk.collection for chunk in plan.chunks}, key=str):
        chunks = [chunk for chunk in plan.chunks if chunk.collection == collection]
        numbers = {chunk.number for chunk in chunks}
        found.append(
            CollectionCheck(
                collection=str(collection),
                tiles=covers_all_ids([chunk.range for chunk in chunks]),
                chunks=len(chunks),
                missing=len(numbers - landed.keys() - discarded - stopped),
                discarded=len(numbers & discarded),
                stopped=len(numbers & stopped),
                documents=sum(landed.get(number, 0) for number in numbers),
                rows=sum(rows.get(number, 0) for number in numbers),
            )
        )
    return found


def _control_rows(ctx: JobContext) -> list[Row]:
    bronze = bronze_table(ctx.settings.source.name)
    if not ctx.tables.exists(bronze):
        raise ConfigurationError(
            f"source {ctx.settings.source.name} has no snapshots yet", next_step="strandline capture --once"
        )
    rows = ctx.tables.read(bronze).where((F.col("op") == "snapshot") & F.col("snapshot_id").isNotNull())
    return rows.select("snapshot_id", "operation_type", "chunk", "after", "captured_at").collect()


def _state(rows: Sequence[Row], planned: Row, *, newest: bool) -> SnapshotState:
    plan = Plan.from_json(planned["after"])
    marks = [
        (row["operation_type"], utc(row["captured_at"])) for row in sorted(rows, key=lambda row: row["captured_at"])
    ]
    words = [word for word, _ in marks]
    going_on = "paused" if is_held(words) else "running"
    ended = next((word for word in ("completed", "stopped") if word in words), None)
    completed = next((row["captured_at"] for row in rows if row["operation_type"] == "completed"), None)
    landed = [json.loads(row["after"])["documents"] for row in rows if row["operation_type"] == "chunk"]
    return SnapshotState(
        snapshot_id=planned["snapshot_id"],
        kind=plan.kind,
        state=ended or (going_on if newest else "replaced"),
        begun_at=utc(planned["captured_at"]),
        completed_at=utc(completed),
        collections=len(plan.collections),
        chunks=len(plan.chunks),
        landed=len(landed),
        discarded=sum(row["operation_type"] == "discarded" for row in rows),
        documents=sum(landed),
        paused_seconds=round(paused_seconds(marks, datetime.now(UTC) if newest else marks[-1][1]), 3),
    )
