"""Reports on the snapshots in bronze: their progress, and the check of their certificates."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from strandline.bronze.manifest_rows import control_rows
from strandline.control.erasures import Erasures
from strandline.errors import ConfigurationError
from strandline.jobs.lake_context import LakeContext
from strandline.jobs.snapshot.plan import Plan, is_paused, paused_seconds
from strandline.model.horizon import Horizon
from strandline.model.namespaces import Namespace
from strandline.model.position import snapshot_position
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.source.ranges import covers_all_ids

_Row = dict[str, Any]


@dataclass(frozen=True)
class SnapshotState:
    """Progress of one snapshot."""

    snapshot_id: str
    kind: str
    """``initial``, ``incremental`` or ``blocking``."""
    state: str
    """``running``, ``paused``, ``completed``, ``stopped``, or ``replaced`` (a later snapshot began before its end)."""
    begun_at: datetime
    completed_at: datetime | None
    collections: int
    chunks: int
    landed: int
    """Chunks in bronze."""
    discarded: int
    """Chunks that were left out: their collection was gone or excluded, or a signal stopped them."""
    documents: int
    paused_seconds: float
    """Total duration of the pauses, in seconds. A pause that is not over counts until now."""


@dataclass(frozen=True)
class CollectionCheck:
    """Check of one collection's snapshot certificate against bronze."""

    collection: str
    tiles: bool
    """True: the planned chunks cover MinKey to MaxKey without a hole or an overlap."""
    chunks: int
    missing: int
    """Chunks that are not in bronze."""
    discarded: int
    """Chunks of a collection that was dropped or excluded."""
    stopped: int
    """Chunks that a signal stopped."""
    documents: int
    """Number of documents in the manifests of the chunks."""
    rows: int
    """Number of READ rows in bronze."""

    @property
    def holds(self) -> bool:
        """Return True if bronze holds every document of the collection."""
        return self.tiles and not self.missing and not self.stopped and self.documents == self.rows


def list_snapshots(ctx: LakeContext) -> list[SnapshotState]:
    """Return all snapshots of the source, newest first. Scheduled reads are left out: `status` shows them.

    I/O: reads the snapshots' control rows in bronze.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    by_id: dict[str, list[_Row]] = defaultdict(list)
    for row in _control_rows(ctx):
        by_id[row["snapshot_id"]].append(row)
    planned = [
        (rows, plan)
        for rows in by_id.values()
        for plan in rows
        if plan["operation_type"] == "plan" and Plan.from_json(plan["after"]).kind != "scheduled"
    ]
    planned.sort(key=lambda pair: pair[1]["captured_at"], reverse=True)
    return [_state(rows, plan, newest=number == 0) for number, (rows, plan) in enumerate(planned)]


@dataclass(frozen=True)
class ChunkProgress:
    """Progress of one collection in a snapshot."""

    collection: str
    chunks: str
    """One letter per chunk: ``d`` done, ``l`` left out, ``w`` waiting."""
    documents: int
    """Documents that are committed."""


def chunk_progress(ctx: LakeContext, snapshot_id: str) -> list[ChunkProgress]:
    """Return the progress of a snapshot, one result per collection, in the order of its plan.

    I/O: reads the snapshots' control rows in bronze.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    control = [row for row in _control_rows(ctx) if row["snapshot_id"] == snapshot_id]
    plan = next(Plan.from_json(row["after"]) for row in control if row["operation_type"] == "plan")
    committed = _committed_chunks(control)
    left_out = {row["chunk"] for row in control if row["operation_type"] == "discarded"}
    bounds: dict[str, list[int]] = defaultdict(list)
    for chunk in plan.chunks:
        bounds[str(chunk.collection)].append(chunk.number)
    return [
        ChunkProgress(
            collection,
            "".join("d" if number in committed else "l" if number in left_out else "w" for number in numbers),
            sum(committed.get(number, 0) for number in numbers),
        )
        for collection, numbers in bounds.items()
    ]


def verify_snapshot(ctx: LakeContext, snapshot_id: str | None = None) -> list[CollectionCheck]:
    """Check the certificate of a snapshot, one result per collection.

    I/O: reads the snapshot's control rows and counts its READ rows in bronze.

    Args:
        snapshot_id: None: the newest snapshot.

    Raises:
        ConfigurationError: There is no such snapshot, or bronze was compacted since. Documents of a collection that
            does not hold were erased since.
    """
    snapshots = list_snapshots(ctx)
    identifier = snapshot_id or (snapshots[0].snapshot_id if snapshots else None)
    if identifier not in {state.snapshot_id for state in snapshots}:
        raise ConfigurationError(f"there is no snapshot {identifier or 'yet'}", next_step="strandline snapshot list")
    control = [row for row in _control_rows(ctx) if row["snapshot_id"] == identifier]
    bronze = bronze_table(ctx.settings.source.name)
    _check_horizon(ctx, bronze, control)
    reads = Query(bronze).where(("snapshot_id", "=", identifier), ("op", "=", "r"))
    counted = ctx.tables.query(reads.group("chunk").aggregate(rows=("count", "op")))
    rows = {row["chunk"]: row["rows"] for row in counted}
    checks = check_certificate(control, rows)
    _check_erasures(ctx, control, {check.collection for check in checks if not check.holds})
    return checks


def _check_erasures(ctx: LakeContext, control: Sequence[_Row], wrong: set[str]) -> None:
    """Raise ConfigurationError if documents of all *wrong* collections were erased later. I/O: reads the erasures."""
    if not wrong:
        return
    erased = {
        str(Namespace(*name))
        for row in Erasures(ctx.tables).all(ctx.settings.source.name)
        if row["position"] >= _planned_at(control)
        for name in json.loads(row["names"])
    }
    if wrong <= erased:
        raise ConfigurationError(
            f"documents of {', '.join(sorted(wrong))} were erased after the snapshot, so their number tells nothing",
            next_step="strandline reconcile, which compares silver with the source",
        )


def _planned_at(control: Sequence[_Row]) -> str:
    planned = next(row["after"] for row in control if row["operation_type"] == "plan")
    return snapshot_position(*json.loads(planned)["at"])


def _check_horizon(ctx: LakeContext, bronze: TableName, control: Sequence[_Row]) -> None:
    """Raise ConfigurationError if bronze was compacted beyond the plan of a snapshot. I/O: reads its properties."""
    horizon = Horizon.of(ctx.tables.properties(bronze))
    if horizon is not None and _planned_at(control) < horizon.position:
        raise ConfigurationError(
            f"bronze was compacted up to {horizon.time:%Y-%m-%d %H:%M:%S} UTC (maintenance.bronze_retention_days), "
            "and the snapshot is older: rows with a newer document are gone, so their number tells nothing",
            next_step="strandline reconcile, which compares silver with the source",
        )


def check_certificate(control: Sequence[_Row], rows: dict[int, int]) -> list[CollectionCheck]:
    """Compare the plan and the manifests of a snapshot with its rows in bronze, by collection. Pure.

    Args:
        control: All control rows of one snapshot.
        rows: Number of READ rows in bronze, by chunk number.
    """
    plan = next(Plan.from_json(row["after"]) for row in control if row["operation_type"] == "plan")
    committed = _committed_chunks(control)
    left_out = {row["chunk"]: json.loads(row["after"]) for row in control if row["operation_type"] == "discarded"}
    stopped = {number for number, reason in left_out.items() if "stopped_by" in reason} - committed.keys()
    discarded = left_out.keys() - stopped
    results = []
    for collection in sorted({chunk.collection for chunk in plan.chunks}, key=str):
        chunks = [chunk for chunk in plan.chunks if chunk.collection == collection]
        numbers = {chunk.number for chunk in chunks}
        results.append(
            CollectionCheck(
                collection=str(collection),
                tiles=covers_all_ids([chunk.range for chunk in chunks]),
                chunks=len(chunks),
                missing=len(numbers - committed.keys() - discarded - stopped),
                discarded=len(numbers & discarded),
                stopped=len(numbers & stopped),
                documents=sum(committed.get(number, 0) for number in numbers),
                rows=sum(rows.get(number, 0) for number in numbers),
            )
        )
    return results


def _committed_chunks(control: Sequence[_Row]) -> dict[int, int]:
    """Return the number of documents of each chunk in bronze, by chunk number."""
    return {row["chunk"]: json.loads(row["after"])["documents"] for row in control if row["operation_type"] == "chunk"}


def _control_rows(ctx: LakeContext) -> list[_Row]:
    bronze = bronze_table(ctx.settings.source.name)
    if not ctx.tables.exists(bronze):
        raise ConfigurationError(
            f"source {ctx.settings.source.name} has no snapshots yet", next_step="strandline capture --once"
        )
    columns = ("snapshot_id", "operation_type", "chunk", "after", "captured_at")
    return ctx.tables.query(control_rows(bronze).select(*columns))


def _state(rows: Sequence[_Row], planned: _Row, *, newest: bool) -> SnapshotState:
    plan = Plan.from_json(planned["after"])
    history = [(row["operation_type"], row["captured_at"]) for row in sorted(rows, key=lambda row: row["captured_at"])]
    row_types = [kind for kind, _ in history]
    unfinished = "paused" if is_paused(row_types) else "running"
    ended = next((kind for kind in ("completed", "stopped") if kind in row_types), None)
    completed = next((row["captured_at"] for row in rows if row["operation_type"] == "completed"), None)
    counts = [json.loads(row["after"])["documents"] for row in rows if row["operation_type"] == "chunk"]
    return SnapshotState(
        snapshot_id=planned["snapshot_id"],
        kind=plan.kind,
        state=ended or (unfinished if newest else "replaced"),
        begun_at=planned["captured_at"],
        completed_at=completed,
        collections=len(plan.collections),
        chunks=len(plan.chunks),
        landed=len(counts),
        discarded=sum(row["operation_type"] == "discarded" for row in rows),
        documents=sum(counts),
        paused_seconds=round(paused_seconds(history, datetime.now(UTC) if newest else history[-1][1]), 3),
    )
