"""State of a capture, which its parts report to. Metrics are computed from it at the moment when they are read."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

HUNG_SECONDS: Final = 600.0
"""Time without a beat after which the loop counts as hung: longer than any commit."""
_BEAT_SECONDS: Final = 1.0


@dataclass(frozen=True)
class SnapshotNow:
    """State of the newest snapshot of this process. Durations are in seconds."""

    id: str
    kind: str
    state: Literal["running", "paused", "completed", "aborted"]
    seconds: float
    """Duration until now or until the end, with pauses."""
    paused_seconds: float
    collections: int
    remaining: int
    """Collections that are not read completely."""
    chunks: int
    chunks_done: int
    documents: Mapping[str, int]
    """Documents that are committed, by collection."""
    chunk: Mapping[str, Any] | None
    """The chunk that was begun last. None: no chunk was begun."""
    last_commit_at: float | None
    """Unix time of the last commit of a chunk in this process. None: no commit yet."""
    rate_limit: int | None = None
    """Maximum documents per second. None: no limit."""
    slowed_by: Mapping[str, str] = field(default_factory=dict)
    """By kind: reasons why the source is loaded, and the snapshot slowed. Empty: it is not."""
    held_at: float | None = None
    """Unix time at which the snapshot last held a chunk back: for the rate limit or a loaded source. None: never."""


@dataclass
class CaptureState:
    """Observer of one capture: its parts report to it, and metrics and health read it. Safe for several threads."""

    commits: int = 0
    """Commits to bronze: batches of the stream, and chunks of snapshots."""
    complete_until: float | None = None
    """Unix time until which all changes of the source are in bronze. None: unknown yet."""
    is_bronze_open: bool = False
    """True: the capture has opened bronze."""
    desired_state: str = "running"
    """State that an operator wants: running, paused, stopped."""
    connected: bool = False
    """True: a change stream is open."""
    disconnects: int = 0
    elections: int = 0
    last_event: Mapping[str, Any] | None = None
    """Newest event in bronze: its operation, collection, position and transaction."""
    last_event_at: float | None = None
    """Unix time at which the newest event was committed. None: no event yet."""
    last_transaction: str | None = None
    """Id of the newest transaction in bronze. None: no transaction yet."""
    queue: tuple[int, int] = (0, 0)
    """Events and bytes that were read from the stream, and whose commit has not begun."""
    queue_capacity: tuple[int, int] = (0, 0)
    """Maximum of *queue*."""
    captured: Sequence[str] = ()
    """Names of the captured collections, at the start."""
    unmerged: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=10_000))
    """Batches that silver has not merged yet: Unix time of the commit, and of the oldest event."""
    unbuilt: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    """Unix time of the oldest event of each batch that silver has merged, and gold not."""
    failing: dict[str, str] = field(default_factory=dict)
    """Reason why the lake, silver or gold failed the last time. What works has no entry."""
    snapshot: Callable[[], SnapshotNow] | None = None
    """Describes the newest snapshot. None: there was no snapshot since the start."""
    on_beat: Callable[[CaptureState], None] = lambda _: None
    """Called in the loop's thread by each `beat`."""
    beat_at: float | None = None
    """Time of the last beat, on the monotonic clock. None: the loop does not run, or a step has no time limit."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def committed(self) -> None:
        """Count one commit."""
        with self._lock:
            self.commits += 1
        self.failing.pop("lake", None)

    def beat(self) -> None:
        """Note that the loop of the capture runs. Called by its own thread only: a loop that hangs has no beat."""
        self.beat_at = time.monotonic()
        self.on_beat(self)

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait in the loop's thread, as `stop.wait` does, with beats meanwhile."""
        until = time.monotonic() + seconds
        while True:
            self.beat()
            left = until - time.monotonic()
            if stop.wait(max(0.0, min(left, _BEAT_SECONDS))):
                return True
            if left <= _BEAT_SECONDS:
                return False

    @contextmanager
    def without_limit(self) -> Iterator[None]:
        """Expect no beat in the block. A restart would not shorten it: for example, the source plans a snapshot."""
        self.beat()
        self.beat_at = None
        try:
            yield
        finally:
            self.beat()

    def ended(self) -> None:
        """Note that the capture has ended. It needs no further beat."""
        self.beat_at = None

    def elected(self) -> None:
        """Count an election of a new primary."""
        self.elections += 1

    def completed_until(self, moment: float) -> None:
        """Note that all changes of the source until *moment* are in bronze. It never goes back.

        Args:
            moment: Unix time: of this machine when it saw that nothing was left to read, or of the source for the
                newest event in bronze.
        """
        self.complete_until = max(moment, self.complete_until or moment)

    def merged(self, before: float) -> list[float]:
        """Return the ages in seconds of the batches that a silver run has merged, by their oldest events.

        Args:
            before: Unix time before the run looked at bronze. Later batches stay.
        """
        ages = []
        while self.unmerged and self.unmerged[0][0] <= before:
            oldest = self.unmerged.popleft()[1]
            self.unbuilt.append(oldest)
            ages.append(max(0.0, time.time() - oldest))
        return ages

    def built(self, count: int) -> list[float]:
        """Return the ages in seconds of the batches that gold contains now, by their oldest events.

        Args:
            count: Number of batches that waited for gold when it was begun. Later ones stay.
        """
        return [max(0.0, time.time() - self.unbuilt.popleft()) for _ in range(count)]

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Count the block as an open change stream. An error in it is a disconnect."""
        self.connected = True
        try:
            yield
        except Exception:
            self.connected = False
            self.disconnects += 1
            raise

    @property
    def behind_seconds(self) -> float | None:
        """Age of the state that bronze shows, in seconds, at this moment. None: unknown."""
        return _age(self.complete_until)

    @property
    def seconds_since_event(self) -> float | None:
        """Time since the newest event was committed, in seconds. None: no event yet."""
        return _age(self.last_event_at)

    def not_ready(self) -> list[str]:
        """Return the reasons why the capture does not work at this moment. Empty: it works."""
        reasons = [] if self.is_bronze_open else ["bronze is not open yet"]
        reasons += [f"lake: {self.failing['lake']}"] if "lake" in self.failing else []
        return reasons + ([] if self.connected else ["the change stream is not open"])

    def not_live(self) -> list[str]:
        """Return the reason why only a new process helps: the loop hangs. Empty: it runs, or does not run yet."""
        since = 0.0 if self.beat_at is None else time.monotonic() - self.beat_at
        return [f"the loop of the capture has hung for {since:.0f} s"] if since > HUNG_SECONDS else []

    def summary(self) -> str:
        """Return one line for people."""
        behind = self.behind_seconds
        states = self.not_ready() or ["capturing" + ("" if behind is None else f", {behind:.0f} s behind the source")]
        states += [f"{layer} fails" for layer in self.failing if layer != "lake"]
        snapshot = None if self.snapshot is None else self.snapshot()
        if snapshot is not None and snapshot.state in ("running", "paused"):
            slowed = f", slowed by {', '.join(snapshot.slowed_by)}" if snapshot.slowed_by else ""
            states.append(f"snapshot {snapshot.state}: {snapshot.chunks_done} of {snapshot.chunks} chunks{slowed}")
        return "; ".join(states)

    def document(self) -> dict[str, Any]:
        """Return what a number cannot say, for JSON. It holds no value of a document."""
        snapshot = None if self.snapshot is None else self.snapshot()
        return {
            "wanted": self.desired_state,
            "process": {"host": socket.gethostname(), "pid": os.getpid()},
            "stream": {
                "connected": self.connected,
                "behind_source_seconds": self.behind_seconds,
                "last_event": self.last_event,
                "last_transaction": self.last_transaction,
                "captured_collections": list(self.captured),
            },
            "failing": dict(self.failing),
            "snapshot": None if snapshot is None else vars(snapshot) | {"documents": dict(snapshot.documents)},
        }


def _age(moment: float | None) -> float | None:
    return None if moment is None else max(0.0, time.time() - moment)
