"""The state of a running snapshot, for the metrics of the process."""

from __future__ import annotations

import time
from typing import Any

from bson import json_util

from strandline.io.telemetry.live_state import SnapshotNow
from strandline.jobs.snapshot.plan import Chunk
from strandline.jobs.snapshot.run import SnapshotRun
from strandline.model.bson import raw as rb


def describe_snapshot(run: SnapshotRun, *, show_keys: bool) -> SnapshotNow:
    """Return the state of *run*. No I/O.

    Args:
        show_keys: Show the bounds of a chunk, which are `_id`s of documents.
    """
    progress = run.progress
    end, ended_at = progress.end, progress.ended_at or time.time()
    return SnapshotNow(
        id=run.id,
        kind=run.plan.kind,
        state="completed" if end == "COMPLETED" else "aborted" if end else "paused" if run.paused else "running",
        seconds=max(0.0, ended_at - progress.started_at),
        paused_seconds=run.paused_seconds if progress.paused_at_end is None else progress.paused_at_end,
        collections=len(run.plan.collections),
        remaining=progress.remaining_collections,
        chunks=len(run.plan.chunks),
        chunks_done=progress.chunks_done,
        documents=progress.documents,
        chunk=None if progress.last_claimed is None else _chunk(progress.last_claimed, show_keys),
        last_commit_at=progress.last_commit_at,
        rate_limit=run.rate_limit,
        slowed_by=run.governor.slowed_by,
        held_at=run.governor.held_at,
    )


def _chunk(chunk: Chunk, show_keys: bool) -> dict[str, Any]:
    bounds = {"lower": _shown(chunk.range.lower), "upper": _shown(chunk.range.upper)} if show_keys else {}
    return {"number": chunk.number, "collection": str(chunk.collection), **bounds}


def _shown(bound: bytes | None) -> str | None:
    """Return a bound as Extended JSON. None: the range is open."""
    if bound is None:
        return None
    try:
        return rb.canonical_json(bound)
    except ValueError:
        return json_util.dumps({"hex": bound.hex()})
