"""Metrics that are computed from the state of the capture when they are read. An unknown value gives no sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from strandline.io.telemetry.live_state import CaptureState, SnapshotNow
from strandline.io.telemetry.metric_table import describe
from strandline.io.telemetry.metrics import OTHERS, TABLE_NAMES

_Reader = Callable[[CaptureState], float | None]
_SnapshotReader = Callable[[SnapshotNow], float | None]
_STATES: Final = ("running", "paused", "aborted", "completed")

_STREAM: Final[list[tuple[str, bool, str, str, _Reader]]] = [
    (
        "behind_source_seconds",
        False,
        "Age of the state that bronze shows at the moment of the scrape: now, minus the time until which all changes "
        "of the source are in bronze.",
        "streaming.MilliSecondsBehindSource",
        lambda state: state.behind_seconds,
    ),
    (
        "since_last_event_seconds",
        False,
        "Time since the newest event was committed to bronze.",
        "streaming.MilliSecondsSinceLastEvent",
        lambda state: state.seconds_since_event,
    ),
    (
        "connected",
        False,
        "1: the change stream is open. 0: it is not.",
        "streaming.Connected",
        lambda state: float(state.connected),
    ),
    (
        "disconnects",
        True,
        "Change streams that ended with an error.",
        "streaming.NumberOfDisconnects snapshot.NumberOfDisconnects",
        lambda state: state.disconnects,
    ),
    (
        "primary_elections",
        True,
        "Elections of a new primary that the driver has seen. Behind a mongos it sees none.",
        "streaming.NumberOfPrimaryElections",
        lambda state: state.elections,
    ),
    ("queue_events", False, "Events that wait for their commit.", "", lambda state: state.queue[0]),
    (
        "queue_capacity_events",
        False,
        "Maximum of queue_events (`capture.max_batch_size`).",
        "streaming.QueueTotalCapacity",
        lambda state: state.queue_capacity[0],
    ),
    (
        "queue_remaining_events",
        False,
        "queue_capacity_events minus queue_events; not below 0.",
        "streaming.QueueRemainingCapacity",
        lambda state: max(0, state.queue_capacity[0] - state.queue[0]),
    ),
    (
        "queue_bytes",
        False,
        "Size of the events that wait for their commit.",
        "streaming.CurrentQueueSizeInBytes",
        lambda state: state.queue[1],
    ),
    (
        "queue_capacity_bytes",
        False,
        "Maximum of queue_bytes (`capture.max_queue_size_in_bytes`).",
        "streaming.MaxQueueSizeInBytes",
        lambda state: state.queue_capacity[1],
    ),
    (
        "captured_collections",
        False,
        "Number of captured collections at the start.",
        "",
        lambda state: len(state.captured),
    ),
]
_SNAPSHOT: Final[list[tuple[str, str, str, _SnapshotReader]]] = [
    (
        "snapshot_seconds",
        "Duration of the newest snapshot, with pauses.",
        "SnapshotDurationInSeconds",
        lambda now: now.seconds,
    ),
    (
        "snapshot_paused_seconds",
        "Duration of its pauses.",
        "SnapshotPausedDurationInSeconds",
        lambda now: now.paused_seconds,
    ),
    ("snapshot_collections", "Collections that it reads.", "TotalTableCount", lambda now: now.collections),
    (
        "snapshot_remaining_collections",
        "Collections that it has not read completely.",
        "RemainingTableCount",
        lambda now: now.remaining,
    ),
    ("snapshot_chunks", "Chunks of its plan.", "", lambda now: now.chunks),
    ("snapshot_chunks_done", "Chunks that are committed or discarded.", "", lambda now: now.chunks_done),
    (
        "snapshot_last_commit_timestamp_seconds",
        "Time of the last commit of one of its chunks.",
        "MilliSecondsSinceLastEvent",
        lambda now: now.last_commit_at,
    ),
    (
        "snapshot_held_timestamp_seconds",
        "Time at which it last held a chunk back: for the rate limit, or because the source was loaded.",
        "",
        lambda now: now.held_at,
    ),
    (
        "snapshot_rate_limit_documents_per_second",
        "Its rate limit (`capture.snapshot_max_documents_per_second`). Absent without a limit.",
        "",
        lambda now: now.rate_limit,
    ),
]
_STATE_TEXT: Final = "1 for the state of the newest snapshot of this process: running, paused, aborted, completed."
_ROWS_TEXT: Final = "Documents of the newest snapshot that are committed, by collection."


for name, counts, text, origin, *_ in _STREAM:
    describe(name, "counter" if counts else "gauge", text, origin=origin)
for name, text, attribute, _reader in _SNAPSHOT:
    describe(name, "gauge", text, origin=f"snapshot.{attribute}" if attribute else "")
_STATE_ORIGIN: Final = " ".join(f"snapshot.Snapshot{name.capitalize()}" for name in _STATES)
describe("snapshot_state", "gauge", _STATE_TEXT, labels=("state",), origin=_STATE_ORIGIN)
describe("snapshot_rows", "gauge", _ROWS_TEXT, labels=("collection",), origin="snapshot.RowsScanned")


def largest(counts: Mapping[str, float], limit: int) -> dict[str, float]:
    """Return the *limit* largest of *counts*, and the sum of all others under `OTHERS`."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    rest = sum(count for _, count in ordered[limit:])
    return dict(ordered[:limit]) | ({OTHERS: rest} if len(ordered) > limit else {})


class LiveMetrics(Collector):
    """Metrics of one capture."""

    def __init__(self, state: CaptureState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        for name, counts, text, _, reader in _STREAM:
            family = (CounterMetricFamily if counts else GaugeMetricFamily)(f"strandline_{name}", text)
            if (value := reader(self._state)) is not None:
                family.add_metric((), value)
            yield family
        if (describe_snapshot := self._state.snapshot) is not None:
            yield from _snapshot_metrics(describe_snapshot())


def _snapshot_metrics(now: SnapshotNow) -> Iterator[Metric]:
    state = GaugeMetricFamily("strandline_snapshot_state", _STATE_TEXT, labels=("state",))
    for state_name in _STATES:
        state.add_metric((state_name,), state_name == now.state)
    yield state
    for name, text, _, reader in _SNAPSHOT:
        family = GaugeMetricFamily(f"strandline_{name}", text)
        if (value := reader(now)) is not None:
            family.add_metric((), value)
        yield family
    rows = GaugeMetricFamily("strandline_snapshot_rows", _ROWS_TEXT, labels=("collection",))
    for collection, documents in largest(now.documents, TABLE_NAMES.limit).items():
        rows.add_metric((collection,), documents)
    yield rows
