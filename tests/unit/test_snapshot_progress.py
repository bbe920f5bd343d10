"""Lanes claim, land and lose chunks; every collection ends once."""

from __future__ import annotations

from typing import Any

from pipelines.control.notifications import Notifications
from pipelines.jobs.snapshot_plan import Chunk, Plan
from pipelines.jobs.snapshot_progress import Progress
from pipelines.source.client import Collection
from pipelines.source.ranges import Range


class Heard(Notifications):
    """Keeps what is told."""

    def __init__(self) -> None:
        super().__init__(tables=None, source="s", channels=(), seconds=1)  # type: ignore[arg-type]  # why: nothing is written
        self.told: list[tuple[str, str, dict[str, Any]]] = []

    def tell(self, aggregate_type: str, kind: str, identifier: str, **more: Any) -> None:
        self.told.append((aggregate_type, kind, {"id": identifier, **more}))


CHUNKS = tuple(Chunk(number, Collection("shop", name, "00"), Range()) for number, name in enumerate("aabb"))


# scenario: N04, N11
def test_chunks_are_claimed_once_and_what_no_lane_has_claimed_can_be_withdrawn() -> None:
    heard = Heard()
    progress = Progress("id", Plan(CHUNKS, 2, kind="incremental", signal="s1"), {0: 7}, heard)
    assert [progress.claim(chunk) for chunk in (CHUNKS[0], CHUNKS[2], CHUNKS[2])] == [False, True, False]
    assert progress.withdraw(lambda name: name == "shop.b") == [CHUNKS[3]]
    assert [chunk.number for chunk in progress.remaining()] == [1, 2]
    assert [progress.is_taken(chunk) for chunk in CHUNKS] == [True, False, True, True]
    progress.finish(CHUNKS[2], 5)
    assert progress.claim(CHUNKS[1])
    progress.finish(CHUNKS[1], 0)
    assert progress.is_complete
    ends = [(more["scanned_collection"], more["total_rows_scanned"], more["status"]) for _, kind, more in heard.told if "TABLE" in kind]
    assert ends == [("shop.b", 5, "STOPPED"), ("shop.a", 7, "SUCCEEDED")]
    assert {(aggregate, more["id"], more["snapshot_id"]) for aggregate, _, more in heard.told} == {("Incremental Snapshot", "s1", "id")}
    assert [more["chunks_done"] for _, kind, more in heard.told if kind == "IN_PROGRESS"] == [3, 4]


def test_what_is_withdrawn_as_a_whole_was_stopped_and_what_is_empty_was_empty() -> None:
    heard = Heard()
    progress = Progress("id", Plan(CHUNKS, 2), {}, heard)
    progress.withdraw(lambda name: name == "shop.b")
    for chunk in CHUNKS[:2]:
        assert progress.claim(chunk)
        progress.finish(chunk, 0)
    assert [more["status"] for _, kind, more in heard.told if kind == "TABLE_SCAN_COMPLETED"] == ["STOPPED", "EMPTY"]
    assert heard.told[0][0] == "Initial Snapshot"
