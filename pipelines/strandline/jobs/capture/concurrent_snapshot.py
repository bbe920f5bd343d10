"""The snapshot that runs beside the change stream."""

from __future__ import annotations

from functools import partial

from strandline.bronze.offsets import Committed
from strandline.jobs.capture.renamed_collections import RenamedCollections
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.snapshot.live import describe_snapshot
from strandline.jobs.snapshot.run import SnapshotRun
from strandline.source.change_batch import ChangeBatch


class ConcurrentSnapshot:
    """The current snapshot of a capture: at most one at a time.

    Every batch of the stream holds the id of the current snapshot. A snapshot counts as ended when a batch without its
    id is committed.

    Args:
        last: Last committed offset. Its snapshot, if any, is resumed.
    """

    def __init__(self, session: CaptureSession, last: Committed) -> None:
        self._session, self._renamed = session, RenamedCollections(session)
        self.run: SnapshotRun | None = None
        self._make_current(SnapshotRun.resume_or_plan(session, last))
        self._documents = 0

    @property
    def snapshot_id(self) -> str | None:
        """Id of the current snapshot, for the next batch. None: no snapshot runs."""
        return None if self.run is None else self.run.id

    def start(self) -> None:
        """Start the current snapshot, unless it has started. Call it after a batch with its id is committed.

        I/O: reads the source and writes bronze, in threads. Idempotent.
        """
        if self.run is not None and not self.run.is_started:
            self._session.writer.end_snapshots_before(self.run.id)
            self.run.start()

    def raise_failure(self) -> None:
        """Raise the error of a failed lane, if any."""
        if self.run is not None:
            _ = self.run.is_fully_read

    def end_if_complete(self) -> bool:
        """Return True if the snapshot has read everything; it is ended then. Raises the error of a failed lane.

        I/O: writes the completion row to bronze, and notifications.
        """
        if self.run is None or not self.run.commit_completion():
            return False
        self.end()
        return True

    def end(self) -> None:
        """End the current snapshot. Wait for the chunks in progress; start no more."""
        self.replace(None)

    def replace(self, run: SnapshotRun | None) -> None:
        """End the current snapshot and make *run* the current one. `start` starts it. None: no snapshot."""
        self._documents += self.run.close() if self.run is not None else 0
        self._make_current(run)

    def _make_current(self, run: SnapshotRun | None) -> None:
        self.run = run
        if run is not None:  # the metrics show an ended snapshot until the next one
            self._session.state.snapshot = partial(describe_snapshot, run, show_keys=self._session.show_keys)

    def before_commit(self, change: ChangeBatch) -> ChangeBatch:
        """Plan a snapshot of the collections that *change* renames unseen. It is then current, and not started.

        I/O: reads the source; writes the new snapshot's plan to bronze.
        """
        planned = self._renamed.plan_snapshot(change.events, running=self.run)
        if planned is not None:
            self.replace(planned)
        return change

    def close(self) -> int:
        """End the current snapshot. Return the number of documents that this process has committed."""
        self.end()
        return self._documents
