"""What runs beside the stream, and the one hand that commits the stream's batches."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.bronze.offsets import Committed
from pipelines.jobs.capture.renamed_collections import RenamedCollections
from pipelines.jobs.capture_session import CaptureSession
from pipelines.jobs.snapshot.run import SnapshotRun


class ConcurrentSnapshot:
    """The snapshot that runs beside the stream; there is one at a time. What it has done counts once a batch names it no more."""

    def __init__(self, session: CaptureSession, last: Committed) -> None:
        self._writer, self._renamed = session.writer, RenamedCollections(session)
        self.run: SnapshotRun | None = SnapshotRun.of(session, last)
        self._documents = 0

    @property
    def id(self) -> str | None:
        """What the next batch names."""
        return None if self.run is None else self.run.id

    def start(self) -> None:
        """I/O: read what the last batch names. Idempotent."""
        if self.run is not None and not self.run.is_started:
            self._writer.end_snapshots_before(self.run.id)
            self.run.start()

    def check(self) -> None:
        """Raises what the snapshot failed with."""
        if self.run is not None:
            _ = self.run.is_read

    def completed(self) -> bool:
        """I/O: whether the snapshot has ended since the last batch; raises what it failed with."""
        if self.run is None or not self.run.completed():
            return False
        self.end()
        return True

    def end(self) -> None:
        """Let the chunks in hand end; from now on there is none."""
        self.begin(None)

    def begin(self, run: SnapshotRun | None) -> None:
        """In place of whatever runs. It is started when a batch has named it."""
        self._documents += self.run.close() if self.run is not None else 0
        self.run = run

    def arrived(self, events: Iterable[bytes]) -> bool:
        """I/O: whether *events* show that something came unseen: it is planned, in place of whatever runs, and not started."""
        reading = self._renamed.snapshot_of(events, running=self.run)
        if reading is not None:
            self.begin(reading)
        return reading is not None

    def close(self) -> int:
        """Let the chunks in hand end, start no other; documents landed by this run."""
        self.end()
        return self._documents
