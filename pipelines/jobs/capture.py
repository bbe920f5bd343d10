"""Bronze: change stream and snapshot → ``bronze.<source>``. One writer for each source."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime

from pipelines.bronze.offsets import Committed
from pipelines.bronze.writer import BronzeWriter
from pipelines.control.sources import Gate
from pipelines.errors import ConfigurationError, ResumePointLost
from pipelines.jobs.arrivals import Arrivals
from pipelines.jobs.context import JobContext
from pipelines.jobs.recovery import Recovery
from pipelines.jobs.selection import checked_selection, selection_of, stream_of
from pipelines.jobs.set_aside import SetAsides, check_oversize
from pipelines.jobs.snapshot import Means, SnapshotRun
from pipelines.settings import CaptureSettings, Settings
from pipelines.source.change_stream import ChangeBatch, StreamLimits, StreamReader, token_at
from pipelines.source.client import AnyClient, ConnectionOptions, Deployment, inspect, open_client, operation_time, token_data
from pipelines.source.patience import Patience
from pipelines.source.resume import ResumePoint, resume_point
from pipelines.source.stages import Selection

Report = Callable[[str, int], None]
"""Told what landed: ``("events", n)`` or ``("documents", n)`` since the last call."""


def _silent(_what: str, _count: int) -> None:
    """No report wanted."""


@dataclass(frozen=True)
class CaptureResult:
    """What one run landed."""

    writer: str
    batch: int
    events: int
    documents: int


def run_capture(ctx: JobContext, *, once: bool = False, stop: threading.Event | None = None, report: Report = _silent) -> CaptureResult:
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
    settings, options, stop = ctx.settings.capture, connection_options(ctx.settings), stop or threading.Event()
    gate = _open_gate(ctx, once)
    selection_of(settings)  # what is wrong with the settings alone needs no server to be told
    with closing(open_client(options)) as client, closing(open_client(options, raw=True)) as raw_client:
        deployment = inspect(client)
        check_oversize(settings, deployment)
        selection = checked_selection(settings, client, deployment)
        writer = BronzeWriter(
            ctx.tables, ctx.settings.source.name, uuid.uuid4().hex, clock_us, stored_json=settings.json_columns == "stored"
        )
        ask, recovery = patience(settings), Recovery(writer, raw_client, selection, settings, deployment)
        last = writer.open(deployment.identity, stream_of(settings))
        if last is None or last.resume_token is None:
            before = last
            last = ask.call(lambda: _begin(writer, before, raw_client, selection, settings, deployment), stop)
        else:
            recovery.refuse_future(last.resume_token)
            last = _again(writer, last) if settings.snapshot_policy.every else last
        target = ask.call(lambda: _present(raw_client, selection, deployment), stop) if once else None
        means = Means(writer, options, selection, settings, gate, report)
        asides = SetAsides(writer, raw_client, selection.fields, settings.cursor_oversize_handling_mode)
        while True:
            reader = StreamReader(
                raw_client,
                selection,
                resume_point(committed_token=last.resume_token),
                limits=stream_limits(settings),
                patience=ask,
                expanded_events=deployment.shows_expanded_events,
            )
            try:
                return _Loop(means, last, asides, Arrivals(means, raw_client)).run(reader, target, stop)
            except ResumePointLost as lost:
                last = recovery.recover(lost)


def _open_gate(ctx: JobContext, once: bool) -> Gate:
    """Raises ConfigurationError where an operator has stopped the source, or paused it and nobody would be there to see it go on."""
    gate = Gate(ctx.tables, ctx.settings.source.name, ctx.settings.capture.heartbeat_interval_ms / 1000)
    state = gate.state()
    if state == "stopped" or (state == "paused" and once):
        verb = "start" if state == "stopped" else "resume"
        raise ConfigurationError(f"source {ctx.settings.source.name} is {state}", next_step=f"strandline {verb}")
    return gate


def _begin(
    writer: BronzeWriter,
    last: Committed | None,
    client: AnyClient,
    selection: Selection,
    settings: CaptureSettings,
    deployment: Deployment,
) -> Committed:
    """The first batch, of all or after a reset: where the stream starts, committed before the first chunk of the snapshot is read."""
    start = resume_point(configured=_configured_start(settings.start_at))
    token = token_at(client, selection, start, expanded_events=deployment.shows_expanded_events)
    snapshot_id = uuid.uuid4().hex if settings.snapshot_policy.first else None
    batch = last.batch + 1 if last is not None else 1
    writer.commit([], batch=batch, resume_token=token, snapshot_id=snapshot_id)
    return Committed(batch, token, snapshot_id, writer.lineage)


def _again(writer: BronzeWriter, last: Committed) -> Committed:
    """Mode ``always``: a snapshot that begins now, unless one is under way."""
    if last.snapshot_id is not None or last.resume_token is None:
        return last
    snapshot_id = uuid.uuid4().hex
    writer.commit([], batch=last.batch + 1, resume_token=last.resume_token, snapshot_id=snapshot_id)
    return replace(last, batch=last.batch + 1, snapshot_id=snapshot_id)


def _present(client: AnyClient, selection: Selection, deployment: Deployment) -> str:
    """The token right before whatever stands at the operation time of now: a stream that polled up to it has seen all before.

    Not the token of a stream opened without a start: that one lies a tick in the future, and an idle cluster reaches it only with its
    next no-op, ten seconds later.
    """
    now = ResumePoint(cluster_time=operation_time(client))
    return token_data(token_at(client, selection, now, expanded_events=deployment.shows_expanded_events))


class _Loop:
    """The writer's loop: commits what the reader hands over, a heartbeat when only the position moved."""

    def __init__(self, means: Means, last: Committed, asides: SetAsides, arrivals: Arrivals) -> None:
        self._writer, self._gate, self._report = means.writer, means.gate, means.report
        self._asides, self._arrivals = asides, arrivals
        self._batch, self._token, self._snapshot_id = last.batch, last.resume_token, last.snapshot_id
        self._snapshot = SnapshotRun.of(means, last)
        self._heartbeat_seconds = means.settings.heartbeat_interval_ms / 1000
        self._streams = means.settings.snapshot_policy.streams
        self._events = 0

    def run(self, reader: StreamReader, target: str | None, stop: threading.Event) -> CaptureResult:
        if self._snapshot is not None:
            self._snapshot.start()
        try:
            self._follow(reader, target, stop)
        finally:
            documents = self._snapshot.close() if self._snapshot is not None else 0
        return CaptureResult(self._writer.writer, self._batch, self._events, documents)

    def _follow(self, reader: StreamReader, target: str | None, stop: threading.Event) -> None:
        committed_at = time.monotonic()
        with closing(reader.batches()) as batches:
            for change in batches:
                completed = self._snapshot_completed()
                caught_up = not self._streams or (target is not None and change.token_data >= target)
                finished = caught_up and self._snapshot_id is None
                ending = finished or not self._gate.passes(stop)
                due = ending or time.monotonic() - committed_at >= self._heartbeat_seconds
                if change.events or completed or (due and change.resume_token != self._token):
                    self._commit(change)
                    committed_at = time.monotonic()
                if ending:
                    return

    def _snapshot_completed(self) -> bool:
        """Whether the snapshot has ended since the last batch; raises what it failed with."""
        if self._snapshot_id is None or self._snapshot is None or not self._snapshot.completed():
            return False
        self._snapshot_id = None
        return True

    def _commit(self, change: ChangeBatch) -> None:
        reading = self._arrivals.snapshot_of(change.events, running=self._snapshot if self._snapshot_id else None)
        if reading is not None:
            self._snapshot, self._snapshot_id = reading, reading.id
        self._asides.land(change.set_aside)
        self._writer.commit(change.events, batch=self._batch + 1, resume_token=change.resume_token, snapshot_id=self._snapshot_id)
        self._batch, self._token = self._batch + 1, change.resume_token
        if reading is not None:
            reading.start()
        self._events += len(change.events)
        self._report("events", len(change.events))


def clock_us() -> int:
    """Microseconds since the epoch, UTC."""
    return time.time_ns() // 1000


def connection_options(settings: Settings) -> ConnectionOptions:
    """Raises ConfigurationError where no URI is set."""
    source = settings.source
    if source.uri is None:
        raise ConfigurationError("no MongoDB is configured", next_step="set STRANDLINE_SOURCE__URI=mongodb://…, or try strandline demo")
    return ConnectionOptions(
        source.uri.get_secret_value(), source.connect_timeout_ms, source.server_selection_timeout_ms, source.socket_timeout_ms
    )


def stream_limits(settings: CaptureSettings) -> StreamLimits:
    return StreamLimits(
        settings.max_batch_size,
        settings.max_queue_size_in_bytes,
        settings.poll_interval_ms,
        settings.cursor_max_await_time_ms,
        oversize=settings.cursor_oversize_handling_mode,
        skip_threshold=settings.cursor_oversize_skip_threshold,
        retry_limit=settings.errors_retry_limit,
        strict=settings.errors_tolerance == "none",
    )


def patience(settings: CaptureSettings) -> Patience:
    return Patience(
        max_retries=settings.errors_max_retries,
        connect_max_attempts=settings.connect_max_attempts,
        max_delay_ms=settings.errors_retry_delay_max_ms,
    )


def _configured_start(start_at: str | None) -> tuple[int, int] | None:
    if start_at is None:
        return None
    try:
        moment = datetime.fromisoformat(start_at)
    except ValueError:
        raise ConfigurationError(
            f"capture.start_at is no ISO 8601 time: {start_at!r}", next_step="write it like 2026-01-31T12:00:00+00:00"
        ) from None
    return int(moment.timestamp()), 0
