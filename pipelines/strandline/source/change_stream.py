"""The change stream as batches of events, each with its resume token. The next batch is read during a commit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

from pymongo import errors as mongo

from strandline.errors import StrandlineError
from strandline.io.telemetry.live_state import CaptureState
from strandline.model.user_pipeline import Stage
from strandline.source.batch_builder import BatchBuilder
from strandline.source.change_batch import ChangeBatch, cluster_time
from strandline.source.client import AnyClient, token_json, translate_errors
from strandline.source.errors import classify
from strandline.source.event_assembler import EventAssembler
from strandline.source.fields import FieldRewriter
from strandline.source.oversize_events import (
    STRIP_STAGE,
    OversizeEvent,
    OversizeLocator,
    key_too_large_error,
    stripped_event,
)
from strandline.source.raw_event import token_of
from strandline.source.raw_reply import EventStream
from strandline.source.read_preference import misplaced
from strandline.source.resume import ResumePoint, not_before
from strandline.source.retry_policy import Failures, RetryPolicy, log
from strandline.source.sharding import check_document_key
from strandline.source.split_events import FragmentTokens, start_past_own_event
from strandline.source.stages import Selection
from strandline.source.stream_opening import REPLY_EVENTS, StreamLimits, check_last_event, open_stream

_CALLBACK_SECONDS = 1.0
_CLOSE_SECONDS = 3.0


@dataclass(frozen=True)
class _ReadEnd:
    """State of the stream when a batch was closed."""

    read_beyond: bool
    """True if the stream's token is later than the batch's last event."""
    failure: Exception | None = None
    drained_at: float | None = None
    """Unix time at which the stream had no more events. None: it may have had more."""


class StreamReader:
    """Reader of one change stream. A thread reads one batch ahead, so memory is bounded by two batches.

    After a retriable error the thread reopens the stream after the last delivered token. Any other error is raised from
    `batches`, after all events that were read before it. An event that the server cannot send is delivered without its
    large documents and listed in `ChangeBatch.oversize_events`.

    Args:
        client: Opened with ``raw=True``, so that events stay bytes.
        start: First position to read. After a retry the reader continues from its last batch.
        expanded_events: Ask for ``showExpandedEvents`` (MongoDB 6.0 and newer).
        state: Observer of the connection and the queue.
    """

    def __init__(
        self,
        client: AnyClient,
        selection: Selection,
        start: ResumePoint,
        *,
        limits: StreamLimits = StreamLimits(),
        retry_policy: RetryPolicy = RetryPolicy(),
        expanded_events: bool = True,
        state: CaptureState | None = None,
    ) -> None:
        self._client, self._selection = client, selection
        self._fields = FieldRewriter(selection.fields)
        self._unique_ids = limits.unique_ids
        self._start = start
        self._limits = limits
        self._retry_policy = retry_policy
        self._expanded = expanded_events
        self._locator = OversizeLocator(REPLY_EVENTS)
        self._carried_over: tuple[bytes, ...] = ()  # events of the next batch that were read already
        self._between_transactions = False  # after the last batch
        self._fragment_tokens = FragmentTokens(client, selection, expanded_events=expanded_events)
        self._queue: queue.SimpleQueue[ChangeBatch | BaseException] = queue.SimpleQueue()
        self._taken = threading.Event()  # set while the queue is empty
        self._taken.set()
        self._stop = threading.Event()
        self._state = state or CaptureState()
        self._state.queue_capacity = (limits.max_batch_size, limits.max_bytes)
        self._batch_requested = threading.Event()  # set while the caller waits for a batch
        self._thread = threading.Thread(target=self._run, name="strandline-stream", daemon=True)

    def batches(self, should_continue: Callable[[], bool] = lambda: True) -> Generator[ChangeBatch]:
        """Start the thread and yield batches. Closing the generator stops the thread.

        An idle stream yields a batch without events about every ``poll_interval_ms``.

        Args:
            should_continue: Called about once a second while no batch comes, such as when the source is down. The
                generator ends if it returns False.
        """
        self._thread.start()
        try:
            while (item := self._next(should_continue)) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.close()

    def _next(self, should_continue: Callable[[], bool]) -> ChangeBatch | BaseException | None:
        self._batch_requested.set()
        try:
            while True:
                try:
                    item = self._queue.get(timeout=_CALLBACK_SECONDS)
                    self._state.queue = (0, 0)
                    self._taken.set()
                    return item
                except queue.Empty:
                    if not should_continue():
                        return None
        finally:
            self._batch_requested.clear()

    def close(self) -> None:
        """Stop reading, within 3 seconds. Batches that were not delivered are dropped: the source has their events."""
        self._stop.set()
        self._thread.join(_CLOSE_SECONDS)
        self._state.connected = False

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                failures = Failures()
                self._retry_policy.call(partial(self._read_until_error, failures), self._stop, failures)
        except BaseException as error:  # noqa: BLE001  # why: the caller raises every error of the thread
            self._put(error)

    def _read_until_error(self, failures: Failures) -> None:
        """Deliver batches until the stream closes: by an invalidate, or by an event that is too large."""
        if self._stop.is_set():
            return
        with translate_errors("opening the change stream", phase=self._start.phase):
            try:
                check_last_event(self._client, self._selection, self._start, expanded_events=self._expanded)
                stream = self._open()
            except mongo.PyMongoError as error:
                self._handle_failure(error)
                return
        self._carried_over = ()  # the stream reopens after the last batch and sends these events again
        with translate_errors("reading the change stream", phase="reading"), self._state.connection(), stream:
            while self._wait_until_taken() and stream.alive:
                batch, failure = self._fill(stream)
                if batch is not None and self._deliver(batch):
                    failures.clear()
                    self._locator.lost_connections = 0
                if failure is not None:
                    self._handle_failure(failure)
                    return
                if batch is not None and self._locator.record_received(len(batch.events)):
                    return
                if self._is_misplaced(stream):
                    return

    def _is_misplaced(self, stream: EventStream) -> bool:
        """Return True if the stream is to be reopened: an election has changed the member that it reads from."""
        client = self._client
        kind = misplaced(client.topology_description, client.read_preference, stream.address)
        if kind is not None:
            host, port = stream.address or ("", None)
            log.warning(
                "the change stream reads from %s:%s, which is a %s now; it is opened again by readPreference=%s",
                *(host, port, kind, client.read_preference.mongos_mode),
            )
        return kind is not None

    def _open(self, *more: Stage) -> EventStream:
        stream = open_stream(
            *(self._client, self._selection, self._start, self._limits, self._expanded),
            more=more,
            one_by_one=self._locator.is_active,
            by_reply=True,
        )
        return EventStream(stream)

    def _deliver(self, batch: ChangeBatch) -> bool:
        """Queue *batch*. Return True if it moved the position."""
        self._state.queue = (len(batch.events), sum(map(len, batch.events)))
        if not self._put(batch):
            return False
        moved = bool(batch.events) or batch.resume_token != self._start.token
        self._start = ResumePoint(token=batch.resume_token, last_event=batch.last_event or self._start.last_event)
        return moved

    def _rewritten(self, raw: bytes) -> bytes:
        """Apply the field rules to an event. Raise ConfigurationError if its `_id` may exist on several shards."""
        return self._fields.rewrite_event(raw if self._unique_ids else check_document_key(raw))

    def _handle_failure(self, failure: Exception) -> None:
        """Move the start, if this stream does not find the event of its token; else `_handle_oversize`."""
        is_missing = isinstance(failure, mongo.PyMongoError) and classify(failure) == "event_missing"
        if is_missing and self._start.token is not None:
            self._start = start_past_own_event(
                self._client, self._selection, self._start, self._stop, expanded_events=self._expanded
            )
        else:
            self._handle_oversize(failure)

    def _handle_oversize(self, failure: Exception) -> None:
        """Read one event per reply from now on, or skip the event if it is certain which one the server cannot send.

        Raises:
            Exception: *failure*, if no large event can explain it. A lost connection that is not explained yet is
                raised too, and retried as any other.
            ConfigurationError: The event is too large even without its documents.
        """
        if not self._locator.may_explain(failure):
            raise failure
        repeated = self._locator.record_refusal()
        if 0 <= self._limits.retry_limit < repeated and self._deliver_stripped(failure):
            return
        if self._locator.is_lost_connection(failure):
            raise failure
        self._stop.wait(self._retry_policy.delay_seconds(self._locator.repeated))

    def _deliver_stripped(self, failure: Exception) -> bool:
        """Deliver the next event without its large documents.

        Return False if there is no event, or if the event does not explain *failure*.
        """
        try:
            with self._open(STRIP_STAGE) as stream:
                event, token = stream.try_next(), stream.resume_token
        except mongo.OperationFailure as error:
            raise (key_too_large_error() if self._locator.may_explain(error) else error) from None
        if event is None:
            return False
        stripped = stripped_event(self._rewritten(event))
        explained = self._locator.explains(failure, stripped)
        if explained:
            self._deliver(
                ChangeBatch((stripped,), token_json(token), (OversizeEvent(stripped, self._locator.refusals, None),))
            )
        self._locator.reset()
        return explained

    def _fill(self, stream: EventStream) -> tuple[ChangeBatch | None, Exception | None]:
        """Read events until the batch can be closed. Return the batch and the error that ended it; each may be None.

        A batch that is due closes as soon as the caller waits for it. After an error the events that were read before
        it are returned too, because they are not read again.
        """
        limits = self._limits
        builder = BatchBuilder(self._carried_over, max_events=limits.max_batch_size, max_bytes=limits.max_bytes)
        builder.awaits_better_token = self._fragment_tokens.holds(self._carried_over)
        assembler = EventAssembler(
            self._rewritten,
            split=limits.oversize == "split",
            skip_threshold=limits.skip_threshold,
            strict=limits.strict,
            show_keys=limits.show_keys,
        )
        first_token = stream.resume_token
        end = self._read_into(builder, assembler, stream)
        self._carried_over, events = builder.next_events, tuple(builder.events)
        token = stream.resume_token  # the driver copies it: once per batch, not once per event
        if end.read_beyond:
            token = token_of(events[-1]) if events else first_token
        # On a mongos another shard may still have events of the transaction.
        caught_up = end.drained_at is not None and not self._client.is_mongos
        if events:
            self._between_transactions = builder.ends_outside_transaction(caught_up=caught_up)
        else:
            self._between_transactions = self._between_transactions or caught_up
        if token is None:
            return None, end.failure
        oversize = tuple(assembler.oversize_events)
        next_event = None if end.drained_at else next(map(cluster_time, builder.next_events), None) or ""
        floor = token_json(token_of(events[-1])) if events else self._start.token
        resume_token = not_before(self._fragment_tokens.replaced(token, next_event), floor)
        return ChangeBatch(events, resume_token, oversize, self._between_transactions, end.drained_at), end.failure

    def _read_into(self, builder: BatchBuilder, assembler: EventAssembler, stream: EventStream) -> _ReadEnd:
        """Read events into *builder* until the batch can be closed, an error comes or the reader is closed."""
        deadline = time.monotonic() + self._limits.poll_interval_ms / 1000
        read_beyond, incomplete, drained_at = False, False, None
        while not self._stop.is_set():
            is_due = self._batch_requested.is_set() and time.monotonic() >= deadline
            if not incomplete and builder.can_close(due=is_due):
                break
            try:
                reply = stream.try_next()
                event, drained_at = None, time.time() if reply is None else None
                builder.awaits_better_token = False
                if reply is not None:
                    read_beyond = True
                    event, is_fragment = assembler.add(reply), incomplete
                    incomplete = event is None  # no token may be committed between the fragments of an event
                    if event is not None and is_fragment:
                        self._fragment_tokens.add(event)
                        builder.awaits_better_token = True
            except (mongo.PyMongoError, StrandlineError) as error:
                return _ReadEnd(read_beyond, failure=error)
            if incomplete:
                continue
            if event is not None and not builder.add(event):
                break
            read_beyond = False
            if event is None:
                waiting = builder.events and self._batch_requested.is_set()
                if builder.awaits_transaction_end or not stream.alive or waiting:
                    break
        return _ReadEnd(read_beyond, drained_at=drained_at)

    def _wait_until_taken(self) -> bool:
        """Wait until the caller has taken the previous batch. Return False if the reader was closed."""
        while not self._stop.is_set():
            if self._taken.wait(timeout=0.1):
                return True
        return False

    def _put(self, item: ChangeBatch | BaseException) -> bool:
        if not self._wait_until_taken():
            return False
        self._taken.clear()
        self._queue.put(item)
        return True
