"""Bounds of a silver table's purge watermark."""

from __future__ import annotations

from strandline.model.gap import Gap
from strandline.model.namespaces import Namespace
from strandline.silver.purge_watermark import WatermarkBound, gap_bounds, lowest_bound
from strandline.silver.sweep import SnapshotCertificate

A, B = Namespace("shop", "a"), Namespace("shop", "b")
WHOLE = SnapshotCertificate("whole", {A: "6:~", B: "7:~"}, "5:~", frozenset({A, B}))
ONLY_B = SnapshotCertificate("b", {B: "9:~"}, None, frozenset({B}))


def test_the_lowest_bound_counts_and_says_what_it_awaits() -> None:
    stream, snapshot = WatermarkBound("5:"), WatermarkBound("3:~", "snapshot s")
    assert lowest_bound([stream, snapshot]) == snapshot
    assert lowest_bound([stream, WatermarkBound("5:", "silver")]).blocked_by == "", "time alone moves it on"


# scenario: the design's "late READs after a drop or a purge"
def test_a_gap_limits_the_watermark_until_a_snapshot_has_read_the_whole_collection_after_it() -> None:
    early, late, of_b, start = Gap("1", "4:~"), Gap("2", "8:~"), Gap("3", "8:~", str(B)), Gap("", "8:~", str(A))

    def bounds(namespace: Namespace, *snapshots: SnapshotCertificate) -> list[str]:
        return [bound.position for bound in gap_bounds((early, late, of_b, start), namespace, snapshots)]

    assert bounds(A) == ["1", "2"], "events before a start never come"
    assert bounds(A, WHOLE) == ["2"]
    assert bounds(A, WHOLE, ONLY_B) == ["2"], "a snapshot of another collection"
    assert bounds(B, WHOLE) == ["2", "3"]
    assert bounds(B, WHOLE, ONLY_B) == []
    assert bounds(Namespace("shop", "gone"), WHOLE) == ["2"], "it was not there when all were listed"
