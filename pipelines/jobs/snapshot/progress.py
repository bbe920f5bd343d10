"""Which chunks of a snapshot are read, and what is told of it. No I/O; its lanes and the stream's loop share it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from pipelines.control.notifications import Notifications, NotificationType
from pipelines.jobs.snapshot.plan import Chunk, Plan

_AGGREGATES: Final = {
    "initial": "Initial Snapshot",
    "incremental": "Incremental Snapshot",
    "blocking": "Blocking Snapshot",
}


class Progress:
    """Chunks are open, claimed by a lane, or done: landed, or discarded for good.

    Args:
        done: What earlier runs have done: chunk → documents.
    """

    def __init__(
        self, snapshot_id: str, plan: Plan, done: Mapping[int, int], notifications: Notifications, *, held: bool = False
    ) -> None:
        self.held = held
        """Chunks in hand end, and no other is claimed."""
        self._in_hand = 0
        self._id, self._plan, self._notifications = snapshot_id, plan, notifications
        self._lock = threading.Lock()
        self._taken = set(done)
        self._done = set(done)
        self._open = Counter(str(chunk.collection) for chunk in plan.chunks if chunk.number not in done)
        self._documents = Counter[str]()
        self._cut_short: dict[str, str] = {}
        for chunk in plan.chunks:
            self._documents[str(chunk.collection)] += done.get(chunk.number, 0)

    def claim(self, chunk: Chunk) -> bool:
        """Claim *chunk* for the caller: nobody else reads or withdraws it then. False: it is taken, or the snapshot is held."""
        with self._lock:
            if self.held or chunk.number in self._taken:
                return False
            self._taken.add(chunk.number)
            self._in_hand += 1
            return True

    def hold(self) -> bool:
        """From now on no chunk is claimed. Whether none is in hand either, so that nothing more lands."""
        with self._lock:
            self.held = True
            return not self._in_hand

    def is_taken(self, chunk: Chunk) -> bool:
        return chunk.number in self._taken

    def finish(self, chunk: Chunk, documents: int, *, skipped: str | None = None) -> None:
        """A claimed chunk has landed, or is *skipped*, and why."""
        name = str(chunk.collection)
        with self._lock:
            self._done.add(chunk.number)
            self._documents[name] += documents
        self.tell(
            "IN_PROGRESS",
            current_collection_in_progress=name,
            chunk=chunk.number,
            chunks=len(self._plan.chunks),
            chunks_done=len(self._done),
            rows_scanned=documents,
        )
        self._close(name, skipped)
        with self._lock:
            self._in_hand -= 1

    def withdraw(self, wanted: Callable[[str], bool]) -> list[Chunk]:
        """Chunks of the collections that are *wanted* and that no lane has claimed; they are done from now on."""
        with self._lock:
            found = [
                chunk
                for chunk in self._plan.chunks
                if chunk.number not in self._taken and wanted(str(chunk.collection))
            ]
            numbers = {chunk.number for chunk in found}
            self._taken |= numbers
            self._done |= numbers
        for chunk in found:
            self._close(str(chunk.collection), "STOPPED")
        return found

    def _close(self, name: str, cut_short: str | None) -> None:
        """One chunk less of a collection; the last one ends its scan."""
        with self._lock:
            if cut_short is not None:
                self._cut_short[name] = cut_short
            self._open[name] -= 1
            ended, documents = not self._open[name], self._documents[name]
        if ended:
            status = self._cut_short.get(name) or ("SUCCEEDED" if documents else "EMPTY")
            self.tell("TABLE_SCAN_COMPLETED", scanned_collection=name, total_rows_scanned=documents, status=status)

    def remaining(self) -> list[Chunk]:
        """What another snapshot must take over from one that was closed."""
        return [chunk for chunk in self._plan.chunks if chunk.number not in self._done]

    @property
    def all_claimed(self) -> bool:
        return len(self._taken) == len(self._plan.chunks)

    @property
    def is_complete(self) -> bool:
        return len(self._done) == len(self._plan.chunks)

    def tell(self, kind: NotificationType, **more: Any) -> None:
        """Under the signal's id, where one asked for the snapshot."""
        self._notifications.notify(
            _AGGREGATES[self._plan.kind], kind, self._plan.signal or self._id, snapshot_id=self._id, **more
        )
