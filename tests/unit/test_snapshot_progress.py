"""Lanes claim, read and discard chunks; the scan of every collection ends once."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from strandline.control.notifications import Notifications
from strandline.control.sources import SourceStateMonitor, State
from strandline.io.telemetry.live_state import CaptureState
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.snapshot.plan import Chunk, Plan, paused_seconds
from strandline.jobs.snapshot.progress import SnapshotProgress
from strandline.jobs.snapshot.run import SnapshotRun
from strandline.settings.capture import CaptureSettings
from strandline.source.client import Collection, ConnectionOptions
from strandline.source.ranges import Range
from strandline.source.retry_policy import RetryPolicy
from strandline.source.stages import Selection


class RecordedNotifications(Notifications):
    """Records notifications instead of writing them."""

    def __init__(self) -> None:
        super().__init__(tables=None, source="s", channels=(), seconds=1)  # type: ignore[arg-type]  # why: nothing is written
        self.told: list[tuple[str, str, dict[str, Any]]] = []

    def notify(self, aggregate_type: str, kind: str, identifier: str, **more: Any) -> None:
        self.told.append((aggregate_type, kind, {"id": identifier, **more}))


CHUNKS = tuple(Chunk(number, Collection("shop", name, "00"), Range()) for number, name in enumerate("aabb"))


# scenario: N04, N11
def test_a_chunk_is_claimed_once_and_only_open_chunks_can_be_discarded() -> None:
    notifications = RecordedNotifications()
    progress = SnapshotProgress("id", Plan(CHUNKS, 2, kind="incremental", signal="s1"), {0: 7}, notifications)
    assert [progress.claim(chunk) for chunk in (CHUNKS[0], CHUNKS[2], CHUNKS[2])] == [False, True, False]
    assert progress.discard(lambda name: name == "shop.b") == [CHUNKS[3]]
    assert [chunk.number for chunk in progress.unfinished()] == [1, 2]
    assert [progress.is_taken(chunk) for chunk in CHUNKS] == [True, False, True, True]
    progress.finish(CHUNKS[2], 5)
    assert progress.claim(CHUNKS[1])
    progress.finish(CHUNKS[1], 0)
    assert progress.is_complete
    ends = [
        (more["scanned_collection"], more["total_rows_scanned"], more["status"])
        for _, kind, more in notifications.told
        if "TABLE" in kind
    ]
    assert ends == [("shop.b", 5, "STOPPED"), ("shop.a", 7, "SUCCEEDED")]
    assert {(aggregate, more["id"], more["snapshot_id"]) for aggregate, _, more in notifications.told} == {
        ("Incremental Snapshot", "s1", "id")
    }
    assert [more["chunks_done"] for _, kind, more in notifications.told if kind == "IN_PROGRESS"] == [3, 4]


def test_a_paused_snapshot_claims_no_chunk_and_waits_for_the_chunks_in_progress() -> None:
    progress = SnapshotProgress("id", Plan(CHUNKS, 2), {0: 7}, RecordedNotifications())
    assert progress.claim(CHUNKS[1])
    assert not progress.pause()
    assert not progress.claim(CHUNKS[2])
    progress.finish(CHUNKS[1], 1)
    assert progress.pause()
    progress.paused = False
    assert progress.claim(CHUNKS[2])
    assert not progress.all_taken


def test_pauses_add_up_through_restarts() -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds) for seconds in range(0, 100, 10)]
    history = [
        ("plan", times[0]),
        ("paused", times[1]),
        ("chunk", times[1]),
        ("resumed", times[3]),
        ("paused", times[5]),
        ("paused", times[6]),
    ]
    assert paused_seconds(history, times[9]) == 20 + 40
    assert paused_seconds([*history, ("stopped", times[7])], times[9]) == 20 + 20
    assert paused_seconds([], times[9]) == 0


def test_a_collection_whose_chunks_are_discarded_is_stopped_and_one_without_documents_is_empty() -> None:
    notifications = RecordedNotifications()
    progress = SnapshotProgress("id", Plan(CHUNKS, 2), {}, notifications)
    progress.discard(lambda name: name == "shop.b")
    for chunk in CHUNKS[:2]:
        assert progress.claim(chunk)
        progress.finish(chunk, 0)
    assert [more["status"] for _, kind, more in notifications.told if kind == "TABLE_SCAN_COMPLETED"] == [
        "STOPPED",
        "EMPTY",
    ]
    assert notifications.told[0][0] == "Initial Snapshot"


class ScriptedGate(SourceStateMonitor):
    """A gate that returns a list of states, one per call. The last state repeats."""

    def __init__(self, *states: State) -> None:
        super().__init__(tables=None, source="s", seconds=0)  # type: ignore[arg-type]  # why: nothing is read
        self.states = list(states)

    def state(self) -> State:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


class FakeRun(SnapshotRun):
    """A snapshot run whose chunks have three documents each. It needs no source."""

    @staticmethod
    def under(gate: SourceStateMonitor, **capture: Any) -> FakeRun:
        nothing: Any = None
        settings = CaptureSettings(snapshot_slow_under_load=False, **capture)
        notifications = RecordedNotifications()
        session = CaptureSession(
            state=CaptureState(),
            writer=nothing,
            options=ConnectionOptions(""),
            client=nothing,
            oplog=nothing,
            deployment=nothing,
            selection=Selection(),
            settings=settings,
            gate=gate,
            notifications=notifications,
            report=lambda *_: None,
            retry_policy=RetryPolicy(),
            stop=threading.Event(),
        )
        return FakeRun(session, "id", Plan(CHUNKS, 2), {})

    def _read_chunk(self, chunk: Chunk, _lane: int) -> int:
        self.progress.finish(chunk, 3)
        return 3


# scenario: R07
def test_a_stop_and_start_that_only_a_lane_saw_does_not_leave_the_snapshot_undone() -> None:
    assert documents_of(FakeRun.under(ScriptedGate("running", "stopped", "stopped", "running"))) == 12


def test_lanes_wait_between_chunks_for_their_share_of_the_rate_limit() -> None:
    """A chunk that was planned without a limit is read at once. Its wait follows: three documents at 12 per second."""
    run, began = FakeRun.under(ScriptedGate("running"), snapshot_max_documents_per_second=24), time.monotonic()
    assert documents_of(run) == 12
    assert time.monotonic() - began >= 3 / 12
    assert run.governor.held_at is not None


def documents_of(run: FakeRun) -> int:
    """Run to the end."""
    run.start()
    deadline = time.monotonic() + 20
    while not run.is_fully_read:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return run.close()


def test_lanes_of_a_source_that_stays_stopped_end_with_their_run() -> None:
    run = FakeRun.under(ScriptedGate("stopped"))
    run.start()
    assert run.close() == 0
    assert not run.is_fully_read
