"""The floor of a silver table: below it tombstones may be gone, so a key that the table lacks is not inserted there. Pure.

That no document comes back follows from this alone: what arrives at or above the floor is newer than any tombstone that went, and what
arrives below it finds no way in. The floor itself must not be higher than anything that may still arrive *and* is news; the smallest of
some bounds is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipelines.model.gap import Gap
from pipelines.model.namespaces import Namespace
from pipelines.model.tables import literal
from pipelines.silver.sweep import SnapshotCertificate


@dataclass(frozen=True)
class WatermarkBound:
    """Nothing that is news can arrive below *position*, as far as one way goes on which it comes."""

    position: str
    awaits: str = ""
    """What moves it on; empty: time alone."""


def lowest_bound(bounds: Iterable[WatermarkBound]) -> WatermarkBound:
    """The lowest of *bounds*; of equal ones the first."""
    return min(bounds, key=lambda bound: bound.position)


def gap_bounds(
    gaps: Iterable[Gap], namespace: Namespace, snapshots: Iterable[SnapshotCertificate]
) -> Iterator[WatermarkBound]:
    """Events that bronze lacks may come after all, when the position is moved back. They are no news once a snapshot has read, behind the
    gap, the whole collection. An open gap sets no bound: it would keep every tombstone for as long as a user's stages stand."""
    healed = max(
        (position for snapshot in snapshots if (position := snapshot.position_for(namespace)) is not None), default=""
    )
    for gap in gaps:
        if gap.concerns(str(namespace)) and gap.before > healed and not gap.is_open:
            yield WatermarkBound(gap.after, f"a snapshot of {namespace}, which has a gap: strandline snapshot start")


def is_below(purge_watermark: str) -> str:
    """SQL: whether a silver row is a tombstone that may go."""
    return f"_deleted AND _position < {literal(purge_watermark)}"
