"""The loop of a capture: read batches from the change stream, process signals, commit to bronze."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from strandline.bronze.offsets import Committed
from strandline.control.erasures import ErasedDocuments
from strandline.control.signal_inbox import SignalInbox
from strandline.errors import ResumePointLost
from strandline.io.telemetry.progress import PROGRESS, Step
from strandline.jobs.capture.batch_committer import BatchCommitter
from strandline.jobs.capture.collection_starts import EventsBeforeStart
from strandline.jobs.capture.concurrent_snapshot import ConcurrentSnapshot
from strandline.jobs.capture.erased_events import ErasedEvents
from strandline.jobs.capture.oversize_events import OversizeEvents
from strandline.jobs.capture.scheduled_reads import EventsOfScheduled
from strandline.jobs.capture.signal_handler import SignalHandler
from strandline.jobs.capture.source_signals import SourceSignals
from strandline.jobs.capture.stream_metrics import StreamMetrics
from strandline.jobs.capture.unknown_operations import UnknownOperations
from strandline.jobs.capture_session import CaptureSession
from strandline.model.position import cluster_time_of
from strandline.source.change_batch import ChangeBatch
from strandline.source.change_stream import StreamReader

_TELL_SECONDS = 60
"""Seconds, and so calls of `_may_continue`, without a batch until a warning. An idle stream has empty batches."""


@dataclass(frozen=True)
class CaptureResult:
    """Counts of one run."""

    writer: str
    """Id of the run's writer. Empty: a run that was told to end before MongoDB answered."""
    batch: int
    """Number of the last committed batch. 0: there is none."""
    events: int
    """Change events committed by this run."""
    documents: int
    """Snapshot documents committed by this run."""
    engine: str = ""
    """Engine that writes bronze: ``Spark`` or ``delta-rs``."""


class BatchCheck(Protocol):
    """A look at a batch before it is committed, for events that mean more than a row."""

    def before_commit(self, change: ChangeBatch) -> ChangeBatch:
        """Do what the events of *change* ask for, and return the batch to commit. I/O: of the check.

        After a crash before the commit, the same events come again.
        """


class StreamLoop:
    """Commits the batches of a reader, and a heartbeat if only the resume token moved."""

    def __init__(self, session: CaptureSession, last: Committed, inbox: SignalInbox) -> None:
        self._session, self._state = session, session.state
        self._committer, self._snapshot = BatchCommitter(session, last), ConcurrentSnapshot(session, last)
        self._signals = SignalHandler(session, self._committer, self._snapshot, inbox)
        self._checks: tuple[BatchCheck, ...] = (
            EventsOfScheduled(session.settings.scheduled),
            EventsBeforeStart(session),
            ErasedEvents(ErasedDocuments(session.writer.tables, session.writer.source)),
            SourceSignals(session.selection, inbox),
            self._snapshot,
            OversizeEvents(session),
        )
        self._heartbeat_seconds = session.settings.heartbeat_interval_ms / 1000
        self._streams = session.settings.snapshot_policy.streams
        self._events = self._silent_calls = 0
        self._step = Step("change stream")
        self._metrics = StreamMetrics(session.state, UnknownOperations(session.notifications))

    def run(self, reader: StreamReader, target: str | None) -> CaptureResult:
        """Read until *target* or until the run must end.

        I/O: reads the source; writes bronze and the control tables.

        Args:
            target: Token data at which the run ends, if no signal or snapshot is left then. None: only the session's
                stop, or an operator, ends the run.
        """
        self._snapshot.start()
        ends = True
        try:
            with PROGRESS.step("change stream", "events", 0 if target is None else None) as self._step:
                self._commit_batches(reader, target)
        except ResumePointLost:  # the same session may go on
            ends = False
            raise
        finally:
            if ends:
                self._session.reads.ending.set()
            documents = self._snapshot.close()
        self._session.notifications.flush()
        return CaptureResult(self._session.writer.writer, self._committer.last.batch, self._events, documents)

    def _commit_batches(self, reader: StreamReader, target: str | None) -> None:
        committed_at = time.monotonic()
        with closing(reader.batches(self._may_continue)) as batches:
            for batch in batches:
                self._state.beat()
                self._silent_calls = 0
                if not self._signals.process():
                    return
                completed, change = self._snapshot.end_if_complete(), batch
                for check in self._checks:
                    change = check.before_commit(change)
                caught_up = not self._streams or (target is not None and batch.reaches(target))
                ending = (caught_up and self._signals.is_idle) or not self._is_running()
                due = ending or time.monotonic() - committed_at >= self._heartbeat_seconds
                if change.events or completed or (due and change.resume_token != self._committer.last.resume_token):
                    self._commit(change)
                    committed_at = time.monotonic()
                if batch.drained_at is not None:  # all events up to this batch are in bronze now
                    self._state.completed_until(batch.drained_at)
                if ending:
                    return

    def _may_continue(self) -> bool:
        """Return False if the run must end. The reader asks while no event comes. Raises the error of a failed lane."""
        self._state.beat()
        self._snapshot.raise_failure()
        self._silent_calls += 1
        if self._silent_calls % _TELL_SECONDS == 0:
            self._session.reads.warn_of_wait("reading the change stream", self._silent_calls)
        return self._is_running()

    def _is_running(self) -> bool:
        """Wait while the source is paused. Return False if the run must end. Raise RestartRequested if one is due."""
        is_running = self._session.gate.wait_until_running(self._session.stop, self._wait_paused)
        self._session.gate.raise_restart()
        self._state.desired_state = self._session.gate.state()
        return is_running

    def _wait_paused(self, stop: threading.Event, seconds: float) -> bool:
        self._state.desired_state = "paused"
        return self._state.wait(stop, seconds)

    def _commit(self, change: ChangeBatch) -> None:
        """Commit one batch. Then start the snapshot that a check has planned, if any."""
        self._committer.commit(change, self._snapshot.snapshot_id)
        self._snapshot.start()
        self._events += len(change.events)
        self._step.advance(len(change.events))
        if change.last_event is not None:
            at = datetime.fromtimestamp(cluster_time_of(change.last_event)[0], UTC)
            self._step.item = f"changes of {at:%Y-%m-%d %H:%M:%S} UTC"
        self._metrics.add(change.events)
        self._session.report("events", len(change.events))
