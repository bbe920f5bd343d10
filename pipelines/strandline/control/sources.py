"""Requested state of each source: rows of ``control.sources``, which captures and snapshots follow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal

from strandline.errors import StrandlineError
from strandline.io.tables.table_store import TableStore
from strandline.model.query import Query
from strandline.model.table_schemas import SOURCES, SOURCES_DDL

State = Literal["running", "paused", "stopped", "deleted"]
Wait = Callable[[threading.Event, float], bool]
"""Waits for an event, at most so many seconds. Returns True if the event is set."""


class RestartRequested(StrandlineError):
    """An operator asks a running capture to begin again with new connections, from its committed position."""


@dataclass(frozen=True)
class SourceState:
    """State that an operator requested. A source without a request is running."""

    source: str
    state: State = "running"
    at: datetime | None = None
    """Time of the request, UTC. None: no request."""
    by: str | None = None
    why: str | None = None
    number: int = 0
    """Number of the request: 1, 2, 3 … 0: no request."""


def state_of(tables: TableStore, source: str) -> SourceState:
    """Return the requested state of *source*. I/O: reads its newest row."""
    if not tables.exists(SOURCES):
        return SourceState(source)
    rows = _newest(tables, Query(SOURCES).where(("source", "=", source)))
    return rows[0] if rows else SourceState(source)


def deleted_at(tables: TableStore, source: str) -> datetime | None:
    """Return the time when *source* was last deleted, UTC; None: never. I/O: reads ``control.sources``."""
    if not tables.exists(SOURCES):
        return None
    rows = _newest(tables, Query(SOURCES).where(("source", "=", source), ("state", "=", "deleted")))
    return rows[0].at if rows else None


def _newest(tables: TableStore, requests: Query) -> list[SourceState]:
    """Return the newest request. Empty: there is none."""
    rows = tables.query(requests.select("source", "state", "at", "by", "why", "number").order("-number").limit(1))
    return [SourceState(**row) for row in rows]


def set_state(
    tables: TableStore, source: str, state: State, *, by: str, why: str | None, restart: bool = False
) -> SourceState:
    """Request a state of *source* and return it.

    I/O: inserts one row in one commit; none if the source has that state already. Any state may follow any other (as in
    KIP-875). If two operators ask at the same time, the later commit wins.

    Args:
        restart: Insert a row for the same state, too. A running capture then begins again.
    """
    while True:
        before = state_of(tables, source)
        if before.state == state and not restart:
            return before
        now = SourceState(source, state, datetime.now(UTC), by, why, before.number + 1)
        comment = "What operators asked of the sources: running, paused or stopped"
        if tables.insert_rows(SOURCES, SOURCES_DDL, [asdict(now)], "source", "number", comment=comment):
            return now  # otherwise another request took the number


class SourceStateMonitor:
    """Cached view of a source's state, for a run that an operator may pause or stop.

    Args:
        seconds: Maximum age of the cached state, in seconds. A refresh costs a small read of a Delta table.
    """

    def __init__(self, tables: TableStore, source: str, seconds: float) -> None:
        self._tables, self._source, self._seconds = tables, source, seconds
        self._state: State = "running"
        self._number: int | None = None
        self._restart_at: datetime | None = None
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def state(self) -> State:
        """Return the source's state, at most *seconds* old."""
        with self._lock:
            if time.monotonic() - self._read_at >= self._seconds:
                request = state_of(self._tables, self._source)
                if self._is_restart(request):
                    self._restart_at = request.at
                self._state, self._number = request.state, request.number
                self._read_at = time.monotonic()
            return self._state

    def _is_restart(self, request: SourceState) -> bool:
        """Return True if *request* follows the last one that was seen, and both ask for a running source.

        More than one request: the source was paused or stopped in between, unseen. Its process goes on, as after a
        shorter look: a process that was suspended meanwhile must not open the epoch that a reset has begun.
        """
        return (
            self._number is not None
            and request.number == self._number + 1
            and self._state == request.state == "running"
        )

    def raise_restart(self) -> None:
        """Raise RestartRequested if an operator has asked for it since the first look at the state."""
        if self._restart_at is not None:
            text = f"an operator asked for a restart at {self._restart_at:%Y-%m-%d %H:%M:%S} UTC"
            raise RestartRequested(text, next_step="strandline capture")

    def wait_until_running(self, stop: threading.Event, wait: Wait = threading.Event.wait) -> bool:
        """Wait while the source is paused. Return True if it runs, False if it is stopped or *stop* is set."""
        while not stop.is_set():
            state = self.state()
            if state != "paused":
                return state == "running"
            wait(stop, self._seconds)
        return False
