"""Cuts for display."""

from __future__ import annotations

from typing import Any

from strandline.control.cuts import cuts
from strandline.jobs.lake_context import LakeContext


def list_cuts(ctx: LakeContext, *, limit: int) -> list[dict[str, Any]]:
    """Return the newest *limit* cuts for display, newest first. I/O: reads ``control.cuts``."""
    return [
        {
            "cut": cut.number,
            "cluster_time": cut.cluster_time,
            "position": cut.position,
            "bronze_version": cut.bronze_version,
            "exact": cut.exact,
            "inexact_reasons": list(cut.inexact_reasons),
            "tables": dict(cut.tables),
            "published_at": cut.published_at,
        }
        for cut in cuts(ctx.tables, limit=limit)
    ]
