"""The purge watermark of a silver table: tombstones below it may be gone, so no missing key is inserted below it. Pure.

This keeps deleted documents deleted: a change at or above the watermark is newer than any purged tombstone, and a
change below it is not inserted. The watermark must not pass any position at which a new change may still arrive. It is
the smallest of several bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from strandline.model.gap import Gap
from strandline.model.namespaces import Namespace
from strandline.model.tables import literal
from strandline.silver.sweep import SnapshotCertificate


@dataclass(frozen=True)
class WatermarkBound:
    """Upper bound of the purge watermark, from one source of late changes.

    No new change from this source (for example the stream or a snapshot) can arrive below *position*.
    """

    position: str
    blocked_by: str = ""
    """Condition that must be met before the bound rises. Empty: it rises with time."""


def lowest_bound(bounds: Iterable[WatermarkBound]) -> WatermarkBound:
    """Return the lowest of *bounds*. Of equal bounds, the first."""
    return min(bounds, key=lambda bound: bound.position)


def gap_bounds(
    gaps: Iterable[Gap], namespace: Namespace, snapshots: Iterable[SnapshotCertificate]
) -> Iterator[WatermarkBound]:
    """Return a bound for each gap that no snapshot has healed for the collection.

    The missing events of a gap may still arrive after an offset is moved back. They no longer matter once a snapshot
    has read the whole collection after the gap. An open gap sets no bound: it would block the purge for as long as the
    user's pipeline stages stay. Nor does the gap before a collection's start: capture leaves its events out.
    """
    healed = max(
        (position for snapshot in snapshots if (position := snapshot.sweep_position(namespace)) is not None), default=""
    )
    for gap in gaps:
        if gap.affects(str(namespace)) and gap.before > healed and not (gap.is_open or gap.is_start):
            yield WatermarkBound(gap.after, f"a snapshot of {namespace}, which has a gap: strandline snapshot start")


def is_below(purge_watermark: str) -> str:
    """Return an SQL predicate: true if a silver row is a tombstone below the purge watermark."""
    return f"_deleted AND _position < {literal(purge_watermark)}"
