"""The capture job: change stream and snapshot → ``bronze.<source>``. Each source has one writer."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeGuard

from strandline.bronze.capture_process import CaptureProcess, newest_writer, writer_id
from strandline.bronze.epoch import BronzeRestored
from strandline.bronze.offsets import Committed, committed
from strandline.bronze.writer import BronzeWriter
from strandline.control.notifications import Notifications
from strandline.control.signal_inbox import SignalFile, SignalInbox
from strandline.control.sources import RestartRequested, SourceStateMonitor
from strandline.errors import ConfigurationError, LakeUnavailable, ResumePointLost, RetriableError
from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics import count_failures
from strandline.jobs.capture.beginning import commit_first_batch, commit_new_snapshot, present_token
from strandline.jobs.capture.filter_changes import filters_to_json
from strandline.jobs.capture.history_loss import HistoryLossHandler
from strandline.jobs.capture.lake_outages import LakeOutages
from strandline.jobs.capture.lineage import CaptureLineage
from strandline.jobs.capture.oversize_events import check_oversize
from strandline.jobs.capture.run_failure import record_failure
from strandline.jobs.capture.stream_loop import CaptureResult, StreamLoop
from strandline.jobs.capture_session import CaptureSession, Report
from strandline.jobs.lake_context import CaptureContext, LakeContext
from strandline.jobs.selection import checked_selection, selection_of, stream_identity
from strandline.jobs.source_connection import (
    capture_oplog,
    connection_options,
    credentials_of,
    retry_policy,
    start_policy,
    stream_reader,
)
from strandline.model.table_schemas import bronze_table
from strandline.model.timestamps import clock_us
from strandline.settings.configuration import Settings
from strandline.source.change_stream import StreamReader
from strandline.source.client import close_client, open_client
from strandline.source.credentials import ConnectionMonitor, CredentialsReplaced
from strandline.source.deployment import inspect_deployment
from strandline.source.read_watch import ReadWatch
from strandline.source.replies import optional_answer
from strandline.source.resume import resume_point
from strandline.source.retry_policy import RetryPolicy
from strandline.source.uri import options_without_effect

_log = logging.getLogger("strandline.capture")


def check_capture_settings(settings: Settings) -> None:
    """Check that the settings say which MongoDB is captured, and what of it. No I/O.

    Raises:
        ConfigurationError: They do not, or they contradict each other.
    """
    credentials_of(settings)
    selection_of(settings.capture)


def run_capture(
    ctx: LakeContext,
    *,
    once: bool = False,
    briefly: bool | None = None,
    stop: threading.Event | None = None,
    report: Report = lambda _what, _count: None,
    state: CaptureState | None = None,
    now_us: Callable[[], int] = clock_us,
) -> CaptureResult:
    """Capture the source into bronze.

    I/O: reads MongoDB; appends to bronze, exactly once. Order: commit the token of the start, then run snapshot and
    stream side by side.

    Args:
        once: End when all changes that the source had committed at the start are in bronze. An empty poll is no sign
            of that.
        briefly: Try to reach MongoDB once at the start, unless ``capture.start_attempts`` is set. None: as *once*.
        stop: Ends the run after the current batch.
        state: Observer of the run, for metrics and health.
        now_us: Clock of bronze's rows and of scheduled reads, in microseconds since the epoch (UTC).

    Raises:
        ConfigurationError: For example, the mode needs images that a captured collection does not record.
        FencedError: Another writer captures this source. No data is lost.
        LakeUnavailable: The lake could not be written, and the attempts are used up.
        ResumePointLost: The source no longer has the history.

    Effects on failure:
        Bronze ends with a whole batch. Another call continues from there.
    """
    check_capture_settings(ctx.settings)
    briefly = once if briefly is None else briefly
    lake = ctx.for_capture(patient=False)
    run = _Run(lake, once, briefly, stop or threading.Event(), report, state or CaptureState(), now_us)
    try:
        result = run.outages.retry(run.attempt)
    except Exception as error:
        if not (run.stop.is_set() and _is_of_a_read(error)):
            run.record(error)
            raise
        _log.info("ended with work in progress, which the next run repeats: %s", error.message)
        result = CaptureResult("", _last_batch(run.ctx), 0, 0)
    finally:
        run.state.ended()
    run.lineage.end(stopped=not once or run.stop.is_set())
    counts = run.row_counts
    return replace(result, events=counts["events"], documents=counts["documents"], engine=lake.engine)


def _is_of_a_read(error: Exception) -> TypeGuard[RetriableError]:
    """Return True if a read failed or was ended: no error for a run that is told to end."""
    return isinstance(error, RetriableError) and not isinstance(error, LakeUnavailable)


def _last_batch(ctx: CaptureContext) -> int:
    """I/O: returns the number of the last committed batch. 0: there is none."""
    bronze = bronze_table(ctx.settings.source.name)
    last = committed(ctx.tables, bronze) if ctx.tables.exists(bronze) else None
    return 0 if last is None else last.batch


@dataclass
class _Run:
    """One run of a capture. Each of its attempts opens bronze and new connections: a `CaptureSession`.

    Args:
        briefly: Try to reach MongoDB once at the start.
        state: Observer of the run.
    """

    ctx: CaptureContext
    once: bool
    briefly: bool
    stop: threading.Event
    report: Report
    state: CaptureState
    now_us: Callable[[], int]
    row_counts: Counter[str] = field(default_factory=Counter, init=False)
    """Committed events and snapshot documents."""
    outages: LakeOutages = field(init=False)
    lineage: CaptureLineage = field(init=False)
    _has_connected: bool = field(default=False, init=False)
    """True once MongoDB has accepted credentials in this run."""

    def __post_init__(self) -> None:
        self.outages = LakeOutages(retry_policy(self.ctx.settings.capture), self.stop, self.state)
        self.lineage = CaptureLineage(self.ctx.settings, self.ctx.tables.lake)

    def count(self, what: str, rows: int) -> None:
        """Count and report the rows of one commit."""
        self.row_counts[what] += rows
        self.lineage.add_rows(rows)
        self.report(what, rows)

    def record(self, failure: Exception) -> None:
        """Count the failure that ends the run, and tell it. I/O: writes a notification, unless the lake failed."""
        count_failures(1, logged=1)
        self.lineage.end(failure)
        if self.outages.begun and not isinstance(failure, LakeUnavailable):
            record_failure(_notifications(self.ctx), failure)

    def attempt(self, is_retry: bool) -> CaptureResult:
        """Capture until the run ends. After new credentials, after an operator's request, and once after a restored
        bronze table, begin again.

        Args:
            is_retry: True after a failed attempt of this process.
        """
        bronze_was_restored = False
        while True:
            connections = ConnectionMonitor(credentials_of(self.ctx.settings), connected=self._has_connected)
            try:
                return self._capture(connections, is_retry, bronze_was_restored)
            except BronzeRestored as error:
                if bronze_was_restored:
                    raise
                bronze_was_restored = True
                _log.warning("%s; a new epoch continues from the table's last batch", error.message)
            except RestartRequested as request:
                _log.info("%s; capture opens new connections", request.message)
            except (CredentialsReplaced, ConfigurationError) as error:
                if not connections.may_go_on(error, self.stop):
                    raise
                bronze_was_restored = False
                _log.warning("%s; capture opens new connections", error.message)
            finally:
                self._has_connected = connections.connected

    def _capture(self, connections: ConnectionMonitor, is_retry: bool, bronze_was_restored: bool) -> CaptureResult:
        settings = self.ctx.settings.capture
        gate = self._open_gate(is_retry)
        if unused := options_without_effect(credentials_of(self.ctx.settings).read()):
            _log.warning("options of the MongoDB URI that have no effect here: %s", ", ".join(unused))
        # Connections that follow others in one run wait for MongoDB, as the stream does.
        policy = replace(retry_policy(settings), before_retry=connections.before_retry)
        first_contact = replace(start_policy(settings, briefly=self.briefly), before_retry=connections.before_retry)
        contact = policy if self._has_connected else first_contact
        with ExitStack() as resources:
            session = contact.call(lambda: self._open_source(policy, gate, resources), self.stop)
            last = _open_bronze(session, bronze_was_restored, resources)
            self.outages.begun = connections.connected = connections.has_opened_stream = True
            self.lineage.begin(session.options.uri, self.state.captured)
            target = session.retry(lambda: present_token(session.oplog)) if self.once else None
            self.state.is_bronze_open = True
            while True:
                try:
                    return StreamLoop(session, last, _inbox(self.ctx)).run(_reader(session, last), target)
                except ResumePointLost as lost:
                    last = HistoryLossHandler(session).recover(lost)

    def _open_source(self, policy: RetryPolicy, gate: SourceStateMonitor, resources: ExitStack) -> CaptureSession:
        """Connect to the source and check the settings against it. *resources* closes the clients.

        Raises:
            ConfigurationError: The source does not fit the settings.
            RetriableError: The source does not answer.
        """
        ctx, settings, options = self.ctx, self.ctx.settings.capture, connection_options(self.ctx.settings)
        self.state.beat()
        with ExitStack() as cleanups:
            client, raw_client = open_client(options), open_client(options, raw=True, elected=self.state.elected)
            for mongo_client in (client, raw_client):
                cleanups.callback(close_client, mongo_client)
            reads = cleanups.enter_context(ReadWatch(self.stop, (client, raw_client)))
            with reads.waiting("the first contact with MongoDB"):
                deployment = inspect_deployment(client, options.uri)
                check_oversize(settings, deployment)
                captured = checked_selection(settings, client, deployment)
            target = [settings.target] if settings.scope == "collection" and settings.target else []
            self.state.captured = target or [str(collection) for collection in captured.collections]
            resources.push(cleanups.pop_all())
        return CaptureSession(
            state=self.state,
            writer=_writer(ctx, self.now_us),
            options=options,
            client=raw_client,
            oplog=capture_oplog(raw_client, captured.selection, settings, deployment),
            deployment=deployment,
            selection=captured.selection,
            settings=settings,
            gate=gate,
            notifications=_notifications(ctx),
            report=self.count,
            retry_policy=policy,
            stop=self.stop,
            show_keys=ctx.settings.logging.show_keys,
            reads=reads,
        )

    def _open_gate(self, is_retry: bool) -> SourceStateMonitor:
        """Return the gate that waits while the source is paused.

        Raises:
            ConfigurationError: An operator has stopped the source, or has paused it and *once* is set: that run would
                never end.
        """
        ctx = self.ctx
        gate = SourceStateMonitor(ctx.tables, ctx.settings.source.name, ctx.settings.capture.control_interval_seconds)
        state = "running" if is_retry else gate.state()  # the loop acts on a state that was set in the meantime
        if state in ("stopped", "deleted") or (state == "paused" and self.once):
            verb = "resume" if state == "paused" else "start"
            raise ConfigurationError(f"source {ctx.settings.source.name} is {state}", next_step=f"strandline {verb}")
        return gate


def _reader(session: CaptureSession, last: Committed) -> StreamReader:
    """Return a reader of the change stream that resumes after *last*. No I/O."""
    return stream_reader(
        session.client,
        session.selection,
        session.settings,
        session.deployment,
        resume_point(committed_token=last.resume_token, last_event=last.last_event),
        policy=session.retry_policy,
        show_keys=session.show_keys,
        state=session.state,
    )


def _open_bronze(session: CaptureSession, was_restored: bool, resources: ExitStack) -> Committed:
    """Open the bronze table and return the offset to resume from. *resources* closes the writer.

    I/O: reads bronze and the source; appends the first batch, a gap, or the batch of a new snapshot.
    """
    settings, writer = session.settings, session.writer
    filters, stream = filters_to_json(session.selection), stream_identity(settings)
    last = writer.open(session.deployment.identity, stream, filters, settings.update_kind, restored=was_restored)
    resources.callback(writer.close)
    session.reads.end_others = writer.end_reads
    if last is not None:
        _warn_of_other_capture(session, last)
    if last is None or last.resume_token is None:
        return session.retry(lambda: commit_first_batch(session, last))
    usable = HistoryLossHandler(session).check_token(last, last.resume_token)
    return commit_new_snapshot(writer, usable) if settings.snapshot_policy.every else usable


def _warn_of_other_capture(session: CaptureSession, last: Committed) -> None:
    """Log which process captures the source already. I/O: reads the newest batches of bronze."""
    writer = session.writer
    newest = optional_answer(
        lambda: newest_writer(writer.tables, writer.table, last.batch), "the process that captures"
    )
    if newest is None:
        return
    other = CaptureProcess.at(datetime.now(UTC), *newest, session.settings.silence_seconds)
    if other.alive and not (other.process is not None and other.process.is_here):
        _log.warning(
            "source %s has another capture (%s); of two captures one ends with exit code 6, and nothing is lost →"
            " run one capture per source",
            writer.source,
            other.summary,
        )


def _writer(ctx: CaptureContext, now_us: Callable[[], int]) -> BronzeWriter:
    stored_json = ctx.settings.capture.json_columns == "stored"
    name, identifier = ctx.settings.source.name, writer_id()
    return BronzeWriter(ctx.tables, name, identifier, now_us, stored_json=stored_json, open_engine=ctx.open_engine)


def _notifications(ctx: CaptureContext) -> Notifications:
    capture = ctx.settings.capture
    return Notifications(
        ctx.tables, ctx.settings.source.name, capture.notification_enabled_channels, capture.control_interval_seconds
    )


def _inbox(ctx: CaptureContext) -> SignalInbox:
    capture = ctx.settings.capture
    file = SignalFile(Path(capture.signal_file)) if capture.signal_file is not None else None
    return SignalInbox(
        ctx.tables,
        ctx.settings.source.name,
        capture.signal_enabled_channels,
        file,
        capture.signal_poll_interval_ms / 1000,
    )
