"""Lanes claim, land and lose chunks; every collection ends once."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.control.notifications import Notifications
from pipelines.control.sources import SourceStateMonitor, State
from pipelines.jobs.capture_session import CaptureSession
from pipelines.jobs.snapshot.plan import Chunk, Plan, paused_seconds
from pipelines.jobs.snapshot.progress import Progress
from pipelines.jobs.snapshot.run import SnapshotRun
from pipelines.settings.capture import CaptureSettings
from pipelines.source.client import Collection, ConnectionOptions
from pipelines.source.ranges import Range
from pipelines.source.retry_policy import RetryPolicy
from pipelines.source.stages import Selection


class Heard(Notifications):
    """Keeps what is told."""

    def __init__(self) -> None:
        super().__init__(tables=None, source="s", channels=(), seconds=1)  # type: ignore[arg-type]  # why: nothing is written
        self.told: list[tuple[str, str, dict[str, Any]]] = []

    def notify(self, aggregate_type: str, kind: str, identifier: str, **more: Any) -> None:
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
    ends = [
        (more["scanned_collection"], more["total_rows_scanned"], more["status"])
        for _, kind, more in heard.told
        if "TABLE" in kind
    ]
    assert ends == [("shop.b", 5, "STOPPED"), ("shop.a", 7, "SUCCEEDED")]
    assert {(aggregate, more["id"], more["snapshot_id"]) for aggregate, _, more in heard.told} == {
        ("Incremental Snapshot", "s1", "id")
    }
    assert [more["chunks_done"] for _, kind, more in heard.told if kind == "IN_PROGRESS"] == [3, 4]


def test_a_held_snapshot_claims_no_chunk_and_is_paused_once_none_is_in_hand() -> None:
    progress = Progress("id", Plan(CHUNKS, 2), {0: 7}, Heard())
    assert progress.claim(CHUNKS[1])
    assert not progress.hold()
    assert not progress.claim(CHUNKS[2])
    progress.finish(CHUNKS[1], 1)
    assert progress.hold()
    progress.held = False
    assert progress.claim(CHUNKS[2])
    assert not progress.all_claimed


def test_pauses_add_up_through_restarts() -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds) for seconds in range(0, 100, 10)]
    marks = [
        ("plan", times[0]),
        ("paused", times[1]),
        ("chunk", times[1]),
        ("resumed", times[3]),
        ("paused", times[5]),
        ("paused", times[6]),
    ]
    assert paused_seconds(marks, times[9]) == 20 + 40
    assert paused_seconds([*marks, ("stopped", times[7])], times[9]) == 20 + 20
    assert paused_seconds([], times[9]) == 0


def test_what_is_withdrawn_as_a_whole_was_stopped_and_what_is_empty_was_empty() -> None:
    heard = Heard()
    progress = Progress("id", Plan(CHUNKS, 2), {}, heard)
    progress.withdraw(lambda name: name == "shop.b")
    for chunk in CHUNKS[:2]:
        assert progress.claim(chunk)
        progress.finish(chunk, 0)
    assert [more["status"] for _, kind, more in heard.told if kind == "TABLE_SCAN_COMPLETED"] == ["STOPPED", "EMPTY"]
    assert heard.told[0][0] == "Initial Snapshot"


class Told(SourceStateMonitor):
    """An operator's orders, one after the other; the last one holds."""

    def __init__(self, *orders: State) -> None:
        super().__init__(tables=None, source="s", seconds=0)  # type: ignore[arg-type]  # why: nothing is read
        self.orders = list(orders)

    def state(self) -> State:
        return self.orders.pop(0) if len(self.orders) > 1 else self.orders[0]


class Read(SnapshotRun):
    """Chunks of three documents, without a source."""

    @staticmethod
    def under(gate: SourceStateMonitor) -> Read:
        nothing: Any = None
        heard, settings = Heard(), CaptureSettings()
        session = CaptureSession(
            nothing,
            ConnectionOptions(""),
            nothing,
            Selection(),
            settings,
            gate,
            heard,
            nothing,
            RetryPolicy(),
            threading.Event(),
        )
        return Read(session, "id", Plan(CHUNKS, 2), {})

    def _land(self, chunk: Chunk, _lane: int) -> int:
        self.progress.finish(chunk, 3)
        return 3


# scenario: R07
def test_a_stop_and_start_that_only_a_lane_saw_does_not_leave_the_snapshot_undone() -> None:
    run = Read.under(Told("running", "stopped", "stopped", "running"))
    run.start()
    deadline = time.monotonic() + 20
    while not run.is_read:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert run.close() == 12


def test_lanes_of_a_source_that_stays_stopped_end_with_their_run() -> None:
    run = Read.under(Told("stopped"))
    run.start()
    assert run.close() == 0
    assert not run.is_read
