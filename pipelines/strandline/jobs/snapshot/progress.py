"""Progress of a snapshot: the state of every chunk, and the notifications. No I/O."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from strandline.control.notifications import Notifications, NotificationType
from strandline.jobs.snapshot.plan import Chunk, Plan

_AGGREGATES: Final = {
    "initial": "Initial Snapshot",
    "incremental": "Incremental Snapshot",
    "blocking": "Blocking Snapshot",
    "scheduled": "Scheduled Snapshot",
}


class SnapshotProgress:
    """State of every chunk: open, claimed by a lane, or done. A done chunk is committed or discarded.

    Thread-safe: the lanes and the stream's loop share it.

    Args:
        done: Chunks that earlier runs have finished: chunk number → number of documents.
        paused: Start without claiming chunks.
    """

    def __init__(
        self,
        snapshot_id: str,
        plan: Plan,
        documents: Mapping[int, int],
        notifications: Notifications,
        *,
        paused: bool = False,
    ) -> None:
        self.paused = paused
        """True: no chunk can be claimed. Chunks in progress continue."""
        self._in_progress = 0
        self._id, self._plan, self._notifications = snapshot_id, plan, notifications
        self._lock = threading.Lock()
        self._taken = set(documents)
        self._finished = set(documents)
        self._open = Counter(str(chunk.collection) for chunk in plan.chunks if chunk.number not in documents)
        self._documents = Counter[str]()
        self._early_end: dict[str, str] = {}
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.end: NotificationType | None = None
        """``COMPLETED`` or ``ABORTED``. None: the snapshot has not ended."""
        self.paused_at_end: float | None = None
        """Total duration of the pauses, in seconds. None: the snapshot has not ended."""
        self.last_claimed: Chunk | None = None
        self.last_commit_at: float | None = None
        for chunk in plan.chunks:
            self._documents[str(chunk.collection)] += documents.get(chunk.number, 0)

    def claim(self, chunk: Chunk) -> bool:
        """Claim *chunk* for the caller. Return False if the chunk is taken or the snapshot is paused."""
        with self._lock:
            if self.paused or chunk.number in self._taken:
                return False
            self._taken.add(chunk.number)
            self._in_progress += 1
            self.last_claimed = chunk
            return True

    def pause(self) -> bool:
        """Let no lane claim a chunk. Return True if no chunk is in progress either, so that no more commit follows."""
        with self._lock:
            self.paused = True
            return not self._in_progress

    def is_taken(self, chunk: Chunk) -> bool:
        """Return True if *chunk* is claimed or done."""
        return chunk.number in self._taken

    def finish(self, chunk: Chunk, documents: int, *, skipped: str | None = None) -> None:
        """Mark a claimed chunk as done.

        Args:
            documents: Number of documents committed.
            skipped: Final status of the collection if the chunk was discarded. None: the chunk was read.
        """
        name = str(chunk.collection)
        with self._lock:
            self._finished.add(chunk.number)
            self._documents[name] += documents
            self.last_commit_at = time.time()
        self.notify(
            "IN_PROGRESS",
            current_collection_in_progress=name,
            chunk=chunk.number,
            chunks=len(self._plan.chunks),
            chunks_done=len(self._finished),
            rows_scanned=documents,
        )
        self._close_chunk(name, skipped)
        with self._lock:
            self._in_progress -= 1

    def discard(self, is_selected: Callable[[str], bool]) -> list[Chunk]:
        """Mark open chunks as done without reading them, and return them.

        Args:
            is_selected: Returns True for the name of a collection to discard.
        """
        with self._lock:
            chunks = [
                chunk
                for chunk in self._plan.chunks
                if chunk.number not in self._taken and is_selected(str(chunk.collection))
            ]
            numbers = {chunk.number for chunk in chunks}
            self._taken |= numbers
            self._finished |= numbers
        for chunk in chunks:
            self._close_chunk(str(chunk.collection), "STOPPED")
        return chunks

    def _close_chunk(self, name: str, cut_short: str | None) -> None:
        """Count down the open chunks of a collection. The last one sends the notification that its scan has ended."""
        with self._lock:
            if cut_short is not None:
                self._early_end[name] = cut_short
            self._open[name] -= 1
            ended, documents = not self._open[name], self._documents[name]
        if ended:
            status = self._early_end.get(name) or ("SUCCEEDED" if documents else "EMPTY")
            self.notify("TABLE_SCAN_COMPLETED", scanned_collection=name, total_rows_scanned=documents, status=status)

    def ended_early(self, name: str) -> bool:
        """Return True if this process has discarded a chunk of the collection *name*."""
        with self._lock:
            return name in self._early_end

    def unfinished(self) -> list[Chunk]:
        """Return the chunks that are not done. After `SnapshotRun.close`, another snapshot can take them over."""
        return [chunk for chunk in self._plan.chunks if chunk.number not in self._finished]

    @property
    def chunks_done(self) -> int:
        """Number of chunks that are done."""
        return len(self._finished)

    @property
    def remaining_collections(self) -> int:
        """Number of collections with chunks that are not done."""
        with self._lock:
            return sum(chunks > 0 for chunks in self._open.values())

    @property
    def documents(self) -> dict[str, int]:
        """Committed documents by collection. Earlier runs count."""
        with self._lock:
            return dict(self._documents)

    @property
    def all_taken(self) -> bool:
        """Return True if every chunk is claimed or done."""
        return len(self._taken) == len(self._plan.chunks)

    @property
    def is_complete(self) -> bool:
        """Return True if every chunk is done."""
        return len(self._finished) == len(self._plan.chunks)

    def notify(self, kind: NotificationType, **details: Any) -> None:
        """Send a notification.

        Its id is the key of the signal that requested the snapshot, or else the snapshot's id.
        """
        if kind in ("COMPLETED", "ABORTED"):
            self.end, self.ended_at, self.paused_at_end = kind, time.time(), details.get("paused_seconds")
        self._notifications.notify(
            _AGGREGATES[self._plan.kind], kind, self._plan.signal or self._id, snapshot_id=self._id, **details
        )
