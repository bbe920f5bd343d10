"""Bronze: change stream and snapshot → ``bronze.<source>``. One writer for each source."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from pipelines.bronze.event import parse_event
from pipelines.bronze.gaps import commit_beginning
from pipelines.bronze.lineage import BronzeRestored
from pipelines.bronze.offsets import Committed
from pipelines.bronze.writer import BronzeWriter
from pipelines.control.notifications import Notifications
from pipelines.control.signal_inbox import SignalFile, SignalInbox
from pipelines.control.sources import SourceStateMonitor
from pipelines.errors import ConfigurationError, ResumePointLost
from pipelines.io.metrics import BEHIND_SOURCE, EVENTS, LAST_EVENT
from pipelines.jobs.capture.batch_committer import BatchCommitter
from pipelines.jobs.capture.concurrent_snapshot import ConcurrentSnapshot
from pipelines.jobs.capture.filter_changes import filters_of
from pipelines.jobs.capture.history_loss import HistoryLossHandler
from pipelines.jobs.capture.oversize_events import OversizeEvents, check_oversize
from pipelines.jobs.capture.signal_handler import SignalHandler
from pipelines.jobs.capture.source_signals import SourceSignals
from pipelines.jobs.capture_session import CaptureSession, Report
from pipelines.jobs.context import JobContext
from pipelines.jobs.migration import migrate
from pipelines.jobs.offset_target import configured_start
from pipelines.jobs.selection import checked_selection, selection_of, stream_of
from pipelines.jobs.source_connection import connection_options, retry_policy, stream_limits
from pipelines.model.timestamps import clock_us
from pipelines.settings.capture import CaptureSettings
from pipelines.source.change_batch import ChangeBatch
from pipelines.source.change_stream import StreamReader
from pipelines.source.client import close_client, open_client, token_data
from pipelines.source.deployment import inspect_deployment
from pipelines.source.oplog import Oplog
from pipelines.source.resume import ResumePoint, resume_point

_log = logging.getLogger("strandline.capture")


def _silent(_what: str, _count: int) -> None:
    """No report wanted."""


@dataclass(frozen=True)
class CaptureResult:
    """What one run landed."""

    writer: str
    batch: int
    events: int
    documents: int


def run_capture(
    ctx: JobContext, *, once: bool = False, stop: threading.Event | None = None, report: Report = _silent
) -> CaptureResult:
    """I/O: reads MongoDB; appends to bronze, exactly once. Order: token of the start, then snapshot and stream side by side.

    Args:
        once: End when everything that was committed in the source at the start has landed; an empty poll is not "caught up".
        stop: Ends the run after the batch in hand.

    Raises:
        ConfigurationError: Among others: the mode needs images that a captured collection does not record.
        FencedError: Another writer is at work; nothing was lost.
        ResumePointLost: The source no longer has the history.

    Effects on failure:
        Bronze ends with a whole batch. Calling again goes on from there.
    """
    stop = stop or threading.Event()
    try:
        return _capture(ctx, once, stop, report)
    except BronzeRestored as restored:
        _log.warning("%s; a new lineage goes on from what the table holds", restored.message)
    return _capture(ctx, once, stop, report, restored=True)


def _capture(
    ctx: JobContext, once: bool, stop: threading.Event, report: Report, *, restored: bool = False
) -> CaptureResult:
    settings, options = ctx.settings.capture, connection_options(ctx.settings)
    gate = _open_gate(ctx, once)
    migrate(ctx)
    selection_of(settings)  # what is wrong with the settings alone needs no server to be told
    with ExitStack() as resources:
        client, raw_client = open_client(options), open_client(options, raw=True)
        for each in (client, raw_client):
            resources.callback(close_client, each)
        deployment = inspect_deployment(client)
        check_oversize(settings, deployment)
        selection = checked_selection(settings, client, deployment)
        writer = _writer(ctx)
        oplog = Oplog(raw_client, selection, expanded_events=deployment.shows_expanded_events)
        notifications, waiting = _notifications(ctx), retry_policy(settings)
        show_keys = ctx.settings.logging.show_keys
        session = CaptureSession(
            writer, options, raw_client, selection, settings, gate, notifications, report, waiting, stop, show_keys
        )
        history_loss = HistoryLossHandler(session, oplog)
        last = writer.open(
            deployment.identity, stream_of(settings), filters_of(selection), settings.update_kind, restored=restored
        )
        resources.callback(writer.close)
        if last is None or last.resume_token is None:
            before = last
            last = session.retry(lambda: _begin(writer, before, oplog, settings))
        else:
            last = history_loss.usable(last, last.resume_token)
            last = _again(writer, last) if settings.snapshot_policy.every else last
        target = session.retry(lambda: _present(oplog)) if once else None
        while True:
            reader = StreamReader(
                raw_client,
                selection,
                resume_point(committed_token=last.resume_token, last_event=last.last_event),
                limits=stream_limits(settings, sharded=deployment.sharded, show_keys=show_keys),
                retry_policy=waiting,
                expanded_events=deployment.shows_expanded_events,
            )
            try:
                return _Loop(session, last, _inbox(ctx)).run(reader, target, stop)
            except ResumePointLost as lost:
                last = history_loss.recover(lost)


def _open_gate(ctx: JobContext, once: bool) -> SourceStateMonitor:
    """Raises ConfigurationError where an operator has stopped the source, or paused it and nobody would be there to see it go on."""
    gate = SourceStateMonitor(ctx.tables, ctx.settings.source.name, ctx.settings.capture.control_interval_seconds)
    state = gate.state()
    if state in ("stopped", "deleted") or (state == "paused" and once):
        verb = "resume" if state == "paused" else "start"
        raise ConfigurationError(f"source {ctx.settings.source.name} is {state}", next_step=f"strandline {verb}")
    return gate


def _writer(ctx: JobContext) -> BronzeWriter:
    settings = ctx.settings.capture
    workers = (
        settings.snapshot_max_threads + 1 if settings.engine == "native" else 0
    )  # the stream does not wait for a chunk to be read
    stored_json = settings.json_columns == "stored"
    return BronzeWriter(
        ctx.tables,
        ctx.settings.source.name,
        uuid.uuid4().hex,
        clock_us,
        stored_json=stored_json,
        native_workers=workers,
    )


def _notifications(ctx: JobContext) -> Notifications:
    capture = ctx.settings.capture
    return Notifications(
        ctx.tables, ctx.settings.source.name, capture.notification_enabled_channels, capture.control_interval_seconds
    )


def _inbox(ctx: JobContext) -> SignalInbox:
    capture = ctx.settings.capture
    file = SignalFile(Path(capture.signal_file)) if capture.signal_file is not None else None
    return SignalInbox(
        ctx.tables,
        ctx.settings.source.name,
        capture.signal_enabled_channels,
        file,
        capture.signal_poll_interval_ms / 1000,
    )


def _begin(writer: BronzeWriter, last: Committed | None, oplog: Oplog, settings: CaptureSettings) -> Committed:
    """The first batch, of all or after a reset: where the stream starts, committed before the first chunk of the snapshot is read.

    Raises:
        ConfigurationError: No stream can start at ``capture.start_at``.
    """
    # A reset is what helps where the source no longer has the history: to start where the first run did would only lose it again.
    start = configured_start(settings.start_at, oplog) if last is None else None
    token = oplog.token_at(resume_point(configured=start))
    if last is not None:
        commit_beginning(writer, oplog.present_time())
    snapshot_id = uuid.uuid4().hex if settings.snapshot_policy.first else None
    return writer.commit(
        [], batch=last.batch + 1 if last is not None else 1, resume_token=token, snapshot_id=snapshot_id
    )


def _again(writer: BronzeWriter, last: Committed) -> Committed:
    """Mode ``always``: a snapshot that begins now, unless one is under way."""
    if last.snapshot_id is not None or last.resume_token is None:
        return last
    return writer.commit(
        [],
        batch=last.batch + 1,
        resume_token=last.resume_token,
        snapshot_id=uuid.uuid4().hex,
        last_event=last.last_event,
    )


def _present(oplog: Oplog) -> str:
    """The token right before whatever stands at the operation time of now: a stream that polled up to it has seen all before.

    Not the token of a stream opened without a start: that one lies a tick in the future, and an idle cluster reaches it only with its
    next no-op, ten seconds later.
    """
    return token_data(oplog.token_at(ResumePoint(cluster_time=oplog.present_time())))


class _Loop:
    """The writer's loop: commits what the reader hands over, a heartbeat when only the position moved."""

    def __init__(self, session: CaptureSession, last: Committed, inbox: SignalInbox) -> None:
        self._session = session
        self._committer, self._snapshot = BatchCommitter(session.writer, last), ConcurrentSnapshot(session, last)
        self._signals, self._from_source = (
            SignalHandler(session, self._committer, self._snapshot, inbox),
            SourceSignals(session.selection, inbox),
        )
        self._oversize = OversizeEvents(session)
        self._heartbeat_seconds = session.settings.heartbeat_interval_ms / 1000
        self._streams = session.settings.snapshot_policy.streams
        self._events = 0

    def run(self, reader: StreamReader, target: str | None, stop: threading.Event) -> CaptureResult:
        self._snapshot.start()
        try:
            self._follow(reader, target, stop)
        finally:
            documents = self._snapshot.close()
        self._session.notifications.flush()
        return CaptureResult(self._session.writer.writer, self._committer.last.batch, self._events, documents)

    def _follow(self, reader: StreamReader, target: str | None, stop: threading.Event) -> None:
        committed_at = time.monotonic()
        with closing(reader.batches(lambda: self._goes_on(stop))) as batches:
            for arrived in batches:
                if not self._signals.process(stop):
                    return
                change, completed = self._from_source.without(arrived), self._snapshot.completed()
                caught_up = not self._streams or (target is not None and change.token_data >= target)
                ending = (caught_up and self._signals.is_idle) or not self._session.gate.wait_until_running(stop)
                due = ending or time.monotonic() - committed_at >= self._heartbeat_seconds
                if change.events or completed or (due and change.resume_token != self._committer.last.resume_token):
                    self._land(change)
                    committed_at = time.monotonic()
                if ending:
                    return

    def _goes_on(self, stop: threading.Event) -> bool:
        """While nothing comes, as when the source is away: nothing lands. Raises what a lane of the snapshot failed with."""
        self._snapshot.check()
        return self._session.gate.wait_until_running(stop)

    def _land(self, change: ChangeBatch) -> None:
        arrived = self._snapshot.arrived(change.events)
        self._oversize.land(change.oversize_events)
        self._committer.land(change, self._snapshot.id)
        if arrived:
            self._snapshot.start()
        self._events += len(change.events)
        _count(change.events)
        self._session.report("events", len(change.events))


def _count(events: Sequence[bytes]) -> None:
    EVENTS.inc(len(events))
    if not events:
        BEHIND_SOURCE.set(0)
        return
    seconds = parse_event(events[-1]).seconds
    LAST_EVENT.set(seconds)
    BEHIND_SOURCE.set(max(0.0, time.time() - seconds))
