"""Metrics of a committed batch of the stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from strandline.bronze.event import parse_event
from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics import CHANGES, EVENTS, LAST_EVENT, SOURCE_TO_BRONZE, TRANSACTIONS
from strandline.jobs.capture.unknown_operations import UnknownOperations
from strandline.model.bson import raw as rb
from strandline.source.event_tally import tally

_NUMBER_BYTES, _UUID_OFFSET = 8, 5


class StreamMetrics:
    """Counts committed batches. A transaction that spans two batches counts once."""

    def __init__(self, state: CaptureState, unknown: UnknownOperations) -> None:
        self._state = state
        self._transaction: bytes | None = None
        self._unknown = unknown

    def add(self, events: Sequence[bytes]) -> None:
        """Count one committed batch."""
        if not events:
            return
        counts, newest, now = tally(events), parse_event(events[-1]), time.time()
        EVENTS.inc(len(events))
        for operation, number in counts.changes.items():
            CHANGES.labels(operation).inc(number)
        self._unknown.add(counts.unknown)
        self._add_transactions(counts.transactions)
        oldest = parse_event(events[0]).seconds
        SOURCE_TO_BRONZE.observe(max(0.0, now - oldest))
        LAST_EVENT.set(newest.seconds)
        self._state.unmerged.append((now, oldest))
        self._state.completed_until(newest.seconds)
        self._state.last_event_at = now
        self._state.last_event = {
            "operation": newest.operation_type,
            "collection": f"{newest.db}.{newest.collection}",
            "position": {"seconds": newest.seconds, "increment": newest.increment},
            "cluster_time": datetime.fromtimestamp(newest.seconds, UTC).isoformat(),
            "committed_at": datetime.fromtimestamp(now, UTC).isoformat(),
        }

    def _add_transactions(self, numbers: Sequence[bytes]) -> None:
        if not numbers:
            return
        TRANSACTIONS.inc(len(numbers) - (numbers[0] == self._transaction))
        self._transaction = numbers[-1]
        self._state.last_transaction = transaction_id(numbers[-1])


def transaction_id(transaction: bytes) -> str:
    """Return ``<id of the session>:<number>`` of a transaction (`transaction_of`)."""
    session, number = transaction[:-_NUMBER_BYTES], rb.int64_at(transaction, len(transaction) - _NUMBER_BYTES)
    span = rb.field(session, b"id")
    return f"{'' if span is None else session[span[1] + _UUID_OFFSET : span[2]].hex()}:{number}"
