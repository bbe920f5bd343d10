"""Load control of snapshots: the rule, the pace and the governor."""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from strandline.jobs.snapshot.governor import SnapshotGovernor
from strandline.model.snapshot_policy import PACED_SECONDS, Pace
from strandline.settings.capture import CaptureSettings
from strandline.source.load import SourceLoad, reasons_to_slow
from strandline.source.pacing import paced

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def tickets(free: int, total: int) -> dict[str, int]:
    return {"out": total - free, "available": free, "totalTickets": total}


def waiting(operations: int) -> dict[str, Any]:
    """R3: the tickets of 8.0 and newer with their queues."""
    return {**tickets(0, 8), "normalPriority": {"queueLength": operations}, "lowPriority": {"queueLength": 9}}


def before_8(read: dict[str, int], write: dict[str, int]) -> dict[str, Any]:
    return {"wiredTiger": {"concurrentTransactions": {"read": read, "write": write}}}


def since_8(read: dict[str, Any], write: dict[str, Any]) -> dict[str, Any]:
    """`serverStatus` of MongoDB 8.0: the tickets have moved."""
    return {"wiredTiger": {"cache": {}}, "queues": {"execution": {"read": read, "write": write}}}


def flow_control(*, lagged: bool) -> dict[str, Any]:
    return {"flowControl": {"enabled": True, "targetRateLimit": 1_000_000_000, "isLagged": lagged}}


IDLE = tickets(127, 128)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], {}),
        ([before_8(IDLE, IDLE) | flow_control(lagged=False)], {}),
        ([before_8(tickets(13, 128), IDLE)], {}),
        ([before_8(tickets(12, 128), IDLE)], {"tickets": "12 of 128 read tickets are free"}),
        ([before_8(IDLE, tickets(0, 128))], {"tickets": "0 of 128 write tickets are free"}),
        ([since_8(tickets(0, 8), IDLE)], {"tickets": "0 of 8 read tickets are free"}),
        ([since_8(tickets(1, 8), IDLE)], {}),
        ([since_8(tickets(0, 0), IDLE)], {}),
        ([since_8(waiting(0), IDLE)], {}),
        ([since_8(waiting(3), IDLE)], {"tickets": "0 of 8 read tickets are free"}),
        ([since_8({"out": 8, "totalTickets": 8, "normalPriority": {"queueLength": 3}}, IDLE)], {}),
        ([before_8(IDLE, IDLE), before_8(tickets(3, 128), IDLE)], {"tickets": "3 of 128 read tickets are free"}),
        ([before_8(IDLE, IDLE) | flow_control(lagged=True)], {"flow_control": "flow control holds writes back"}),
        ([{"process": "mongos"}], {}),
    ],
)
def test_few_tickets_and_flow_control_slow_a_snapshot(statuses: list[dict[str, Any]], expected: dict[str, str]) -> None:
    assert reasons_to_slow(SourceLoad.of(statuses)) == expected


def lag_of(*members: tuple[str, int, int], delayed: dict[str, Any] | None = None) -> float | None:
    """The lag by members: name, state, seconds behind. *delayed*: options of the member `d`."""
    found = [
        {"name": name, "state": state, "optimeDate": NOW - timedelta(seconds=behind)} for name, state, behind in members
    ]
    config = [
        {"host": name, "secondaryDelaySecs": 0, **((delayed or {}) if name == "d" else {})} for name, *_ in members
    ]
    return SourceLoad.of([], {"members": found}, {"config": {"members": config}}).lag_seconds


def test_the_lag_is_that_of_the_slowest_secondary_that_is_not_delayed() -> None:
    assert lag_of(("a", 1, 0), ("b", 2, 3), ("c", 2, 20)) == 20
    assert lag_of(("a", 1, 0), ("b", 2, 3), ("d", 2, 3600), delayed={"secondaryDelaySecs": 3600}) == 3
    assert lag_of(("a", 1, 0), ("d", 2, 3600), delayed={"slaveDelay": 3600}) is None, "MongoDB 4.4"
    assert lag_of(("a", 1, 0), ("down", 8, 9_999), ("arbiter", 7, 9_999), ("syncing", 5, 9_999)) is None
    assert lag_of(("a", 2, 0), ("b", 2, 3)) is None, "no primary"
    assert SourceLoad.of([], {"members": []}, None).lag_seconds is None, "a delayed member is not known"
    assert reasons_to_slow(SourceLoad(lag_seconds=15)) == {}
    assert reasons_to_slow(SourceLoad(lag_seconds=16)) == {"replication_lag": "a secondary is 16 s behind the primary"}


class Clock:
    """A clock that only moves when someone sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_paced_read_waits_after_each_reply_and_never_longer_than_its_chunk_may() -> None:
    clock = Clock()
    assert list(paced([[0] * 10, [0] * 5, []], Pace(5), clock, clock.sleep)) == [[0] * 10, [0] * 5, []]
    assert clock.slept == [2, 1]
    slow = Clock()
    for _ in paced([[0] * 10] * 3, Pace(5), slow, slow.sleep):
        slow.now += 3  # the server is slower than the pace
    assert slow.slept == []
    large = Clock()
    assert len(list(paced([[0]] * 100, Pace(1), large, large.sleep))) == 100
    assert sum(large.slept) == PACED_SECONDS


@pytest.mark.parametrize(
    ("limit", "threads", "chunk", "expected"),
    [
        (0, 2, 250_000, 250_000),
        (100_000, 2, 250_000, 250_000),
        (2_000, 2, 250_000, 30_000),
        (10, 2, 250_000, 1_000),
        (10, 2, 50, 50),
    ],
)
def test_chunks_under_a_rate_limit_are_small(limit: int, threads: int, chunk: int, expected: int) -> None:
    settings = CaptureSettings(
        snapshot_max_documents_per_second=limit, snapshot_max_threads=threads, snapshot_chunk_size=chunk
    )
    assert settings.chunk_size.documents == expected
    assert settings.pace_of(threads) == (Pace(limit / threads) if limit else None)


def slowed_seconds() -> float:
    labels = {"reason": "flow_control"}
    return REGISTRY.get_sample_value("strandline_snapshot_slowed_seconds_total", labels) or 0.0


def test_a_loaded_source_delays_a_chunk_until_it_is_idle_again(caplog: pytest.LogCaptureFixture) -> None:
    loads = [SourceLoad(flow_control=True)] * 3 + [SourceLoad()]
    governor = SnapshotGovernor(lambda: loads.pop(0), look_seconds=0.01, hold_seconds=60)
    before = slowed_seconds()
    with caplog.at_level(logging.INFO, "strandline.snapshot"):
        assert governor.wait_for_turn(0, threading.Event())
    assert (loads, governor.slowed_by) == ([], {})
    assert slowed_seconds() - before >= 0.03
    begin, end = caplog.messages
    assert begin.startswith("the snapshot is slowed: flow control holds writes back (")
    assert end.startswith("the snapshot is no longer slowed, after ")
    assert governor.held_at is not None


def test_a_source_that_stays_loaded_delays_a_chunk_no_longer_than_the_hold(caplog: pytest.LogCaptureFixture) -> None:
    governor = SnapshotGovernor(lambda: SourceLoad(flow_control=True), look_seconds=0.01, hold_seconds=0.05)
    began = time.monotonic()
    assert governor.wait_for_turn(0, threading.Event())
    assert time.monotonic() - began >= 0.05
    assert governor.slowed_by
    caplog.set_level(logging.INFO, "strandline.snapshot")
    governor.close()
    assert caplog.messages[-1].startswith("the snapshot is no longer slowed")


def test_the_load_is_asked_for_at_intervals_and_a_stop_ends_every_wait() -> None:
    asked = list[None]()

    def read() -> SourceLoad:
        asked.append(None)
        return SourceLoad()

    governor, stop = SnapshotGovernor(read), threading.Event()
    assert [governor.wait_for_turn(0, stop) for _ in range(3)] == [True] * 3
    assert (len(asked), governor.held_at) == (1, None)
    assert governor.wait_for_turn(time.monotonic() + 0.05, stop)
    assert governor.held_at is not None, "the rate limit holds a chunk back, too"
    stop.set()
    assert not governor.wait_for_turn(time.monotonic() + 3600, stop)
    assert not SnapshotGovernor(lambda: SourceLoad(flow_control=True)).wait_for_turn(0, stop)
    assert not SnapshotGovernor(None).wait_for_turn(0, stop)
