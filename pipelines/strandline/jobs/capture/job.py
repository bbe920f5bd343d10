"""The capture job: change stream and snapshot → ``bronze.<source>``. Each source has one writer."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from strandline.bronze.capture_process import CaptureProcess, newest_writer, writer_id
from strandline.bronze.epoch import BronzeRestored
from strandline.bronze.offsets import Committed, committed
from strandline.bronze.writer import BronzeWriter
from strandline.control.notifications import Notifications
from strandline.control.signal_inbox import SignalFile, SignalInbox
from strandline.control.sources import SourceStateMonitor
from strandline.errors import ConfigurationError, LakeUnavailable, ResumePointLost, RetriableError
from strandline.io.telemetry.live_state import CAPTURE
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
from strandline.source.deployment import Deployment, inspect_deployment
from strandline.source.oplog import Oplog
from strandline.source.read_watch import ReadWatch
from strandline.source.replies import optional_answer
from strandline.source.resume import resume_point
from strandline.source.retry_policy import RetryPolicy
from strandline.source.uri import options_without_effect

_log = logging.getLogger("strandline.capture")


def _no_report(_what: str, _count: int) -> None:
    """Report nothing."""


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
    report: Report = _no_report,
) -> CaptureResult:
    """Capture the source into bronze.

    I/O: reads MongoDB; appends to bronze, exactly once. Order: commit the token of the start, then run snapshot and
    stream side by side.

    Args:
        once: End when all changes that the source had committed at the start are in bronze. An empty poll is no sign
            of that.
        briefly: Try to reach MongoDB once at the start, unless ``capture.start_attempts`` is set. None: as *once*.
        stop: Ends the run after the current batch.

    Raises:
        ConfigurationError: For example, the mode needs images that a captured collection does not record.
        FencedError: Another writer captures this source. No data is lost.
        LakeUnavailable: The lake could not be written, and the attempts are used up.
        ResumePointLost: The source no longer has the history.

    Effects on failure:
        Bronze ends with a whole batch. Another call continues from there.
    """
    check_capture_settings(ctx.settings)
    stop, opened, landed = stop or threading.Event(), ctx.for_capture(patient=False), Counter[str]()
    outages = LakeOutages(retry_policy(ctx.settings.capture), stop)
    lineage = CaptureLineage(ctx.settings, opened.tables.lake)

    def count(what: str, rows: int) -> None:
        landed[what] += rows
        lineage.landed(rows)
        report(what, rows)

    start = start_policy(ctx.settings.capture, briefly=once if briefly is None else briefly)
    CAPTURE.runs = True
    try:
        result = outages.retry(_Attempts(opened, once, stop, count, outages, lineage, start))
    except Exception as error:
        if stop.is_set() and _is_of_the_source(error):
            _log.info("ended before MongoDB answered: %s", error)
            result = CaptureResult("", _last_batch(opened), 0, 0)
        else:
            count_failures(1, logged=1)
            lineage.end(error)
            if outages.begun and not isinstance(error, LakeUnavailable):
                record_failure(_notifications(opened), error)
            raise
    finally:
        CAPTURE.ended()
    lineage.end(stopped=not once or stop.is_set())
    return replace(result, events=landed["events"], documents=landed["documents"])


def _is_of_the_source(error: Exception) -> bool:
    """Return True if the source did not answer: no error for a run that is told to end."""
    return isinstance(error, RetriableError) and not isinstance(error, LakeUnavailable)


def _last_batch(ctx: CaptureContext) -> int:
    """I/O: returns the number of the last committed batch. 0: there is none."""
    bronze = bronze_table(ctx.settings.source.name)
    last = committed(ctx.tables, bronze) if ctx.tables.exists(bronze) else None
    return 0 if last is None else last.batch


@dataclass
class _Attempts:
    """Attempts of one run. Each opens bronze and new connections.

    Args:
        start: Policy of the first contact with MongoDB.
        connected: True once MongoDB has accepted credentials in this run.
    """

    ctx: CaptureContext
    once: bool
    stop: threading.Event
    report: Report
    outages: LakeOutages
    lineage: CaptureLineage
    start: RetryPolicy
    connected: bool = False

    def __call__(self, *, again: bool) -> CaptureResult:
        restored = False
        while True:
            connections = ConnectionMonitor(credentials_of(self.ctx.settings), connected=self.connected)
            given = (self.ctx, self.once, self.stop, self.report, self.outages, self.lineage)
            # Connections that follow others in one run wait for MongoDB, as the stream does.
            contact = retry_policy(self.ctx.settings.capture) if self.connected else self.start
            run = _Run(*given, replace(contact, before_retry=connections.before_retry), connections, again, restored)
            try:
                return _capture(run)
            except BronzeRestored as error:
                if restored:
                    raise
                restored = True
                _log.warning("%s; a new epoch continues from the table's last batch", error.message)
            except (CredentialsReplaced, ConfigurationError) as error:
                if not connections.may_go_on(error, self.stop):
                    raise
                restored = False
                _log.warning("%s; capture opens new connections", error.message)
            finally:
                self.connected = connections.connected


@dataclass(frozen=True)
class _Run:
    """Options and state of one attempt.

    Args:
        contact: Policy of the contact with MongoDB.
        again: True after a failed attempt of this process.
        restored: True if the previous attempt raised `BronzeRestored`.
    """

    ctx: CaptureContext
    once: bool
    stop: threading.Event
    report: Report
    outages: LakeOutages
    lineage: CaptureLineage
    contact: RetryPolicy
    connections: ConnectionMonitor
    again: bool
    restored: bool


@dataclass(frozen=True)
class _Source:
    """An open source."""

    session: CaptureSession
    oplog: Oplog
    deployment: Deployment

    def reader(self, last: Committed) -> StreamReader:
        """Return a reader of the change stream that resumes after *last*. No I/O."""
        session = self.session
        return stream_reader(
            session.client,
            session.selection,
            session.settings,
            self.deployment,
            resume_point(committed_token=last.resume_token, last_event=last.last_event),
            policy=session.retry_policy,
            show_keys=session.show_keys,
        )


def _capture(run: _Run) -> CaptureResult:
    ctx = run.ctx
    gate = _open_gate(run)
    if unused := options_without_effect(credentials_of(ctx.settings).read()):
        _log.warning("options of the MongoDB URI that have no effect here: %s", ", ".join(unused))
    with ExitStack() as resources:
        source = run.contact.call(lambda: _open_source(run, gate, resources), run.stop)
        history_loss = HistoryLossHandler(source.session, source.oplog)
        last = _open_bronze(source, history_loss, run.restored, resources)
        run.outages.begun = CAPTURE.opened = True
        run.lineage.begin(source.session.options.uri, CAPTURE.captured)
        run.connections.connected = run.connections.opened = True
        target = source.session.retry(lambda: present_token(source.oplog)) if run.once else None
        while True:
            try:
                return StreamLoop(source.session, last, _inbox(ctx)).run(source.reader(last), target, run.stop)
            except ResumePointLost as lost:
                last = history_loss.recover(lost)


def _open_source(run: _Run, gate: SourceStateMonitor, resources: ExitStack) -> _Source:
    """Connect to the source and check the settings against it. *resources* closes the clients.

    Raises:
        ConfigurationError: The source does not fit the settings.
        RetriableError: The source does not answer.
    """
    ctx, settings, options = run.ctx, run.ctx.settings.capture, connection_options(run.ctx.settings)
    CAPTURE.beat()
    with ExitStack() as opened:
        client, raw_client = open_client(options), open_client(options, raw=True, elected=CAPTURE.elected)
        for each in (client, raw_client):
            opened.callback(close_client, each)
        reads = opened.enter_context(ReadWatch(run.stop, (client, raw_client)))
        with reads.waiting("the first contact with MongoDB"):
            deployment = inspect_deployment(client, options.uri)
            check_oversize(settings, deployment)
            found = checked_selection(settings, client, deployment)
        target = [settings.target] if settings.scope == "collection" and settings.target else []
        CAPTURE.captured = target or [str(each) for each in found.collections]
        resources.push(opened.pop_all())
    session = CaptureSession(
        _writer(ctx),
        options,
        raw_client,
        found.selection,
        settings,
        gate,
        _notifications(ctx),
        run.report,
        replace(retry_policy(settings), before_retry=run.connections.before_retry),
        run.stop,
        ctx.settings.logging.show_keys,
        reads,
    )
    return _Source(session, capture_oplog(raw_client, found.selection, settings, deployment), deployment)


def _open_bronze(source: _Source, history_loss: HistoryLossHandler, restored: bool, resources: ExitStack) -> Committed:
    """Open the bronze table and return the offset to resume from. *resources* closes the writer.

    I/O: reads bronze and the source; appends the first batch, a gap, or the batch of a new snapshot.
    """
    session, settings, writer = source.session, source.session.settings, source.session.writer
    filters = filters_to_json(session.selection)
    last = writer.open(
        source.deployment.identity, stream_identity(settings), filters, settings.update_kind, restored=restored
    )
    resources.callback(writer.close)
    session.reads.end_others = writer.end_reads
    if last is not None:
        _warn_of_other_capture(session, last)
    if last is None or last.resume_token is None:
        return session.retry(lambda: commit_first_batch(writer, last, source.oplog, settings))
    usable = history_loss.check_token(last, last.resume_token)
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


def _open_gate(run: _Run) -> SourceStateMonitor:
    """Return the gate that waits while the source is paused.

    Raises:
        ConfigurationError: An operator has stopped the source, or has paused it and *once* is set: that run would
            never end.
    """
    ctx = run.ctx
    gate = SourceStateMonitor(ctx.tables, ctx.settings.source.name, ctx.settings.capture.control_interval_seconds)
    state = "running" if run.again else gate.state()  # the loop acts on a state that was set in the meantime
    if state in ("stopped", "deleted") or (state == "paused" and run.once):
        verb = "resume" if state == "paused" else "start"
        raise ConfigurationError(f"source {ctx.settings.source.name} is {state}", next_step=f"strandline {verb}")
    return gate


def _writer(ctx: CaptureContext) -> BronzeWriter:
    stored_json = ctx.settings.capture.json_columns == "stored"
    name, identifier = ctx.settings.source.name, writer_id()
    return BronzeWriter(ctx.tables, name, identifier, clock_us, stored_json=stored_json, open_engine=ctx.open_engine)


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
