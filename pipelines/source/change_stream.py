"""The change stream as batches: filled while the one before is being committed, each with the token that ends it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

from bson.raw_bson import RawBSONDocument
from pymongo import errors as mongo
from pymongo.change_stream import ChangeStream

from pipelines.errors import StrandlineError
from pipelines.model.bson.raw import field, timestamp_at
from pipelines.model.position import cluster_time_hex
from pipelines.model.user_pipeline import Stage
from pipelines.source.batch_builder import BatchBuilder
from pipelines.source.client import AnyClient, token_data, token_json, translate_errors
from pipelines.source.event_assembler import EventAssembler
from pipelines.source.fields import FieldRewriter
from pipelines.source.oversize_events import (
    SPLIT_STAGE,
    STRIP_STAGE,
    OversizeEvent,
    OversizeLocator,
    key_too_large,
    stripped_event,
)
from pipelines.source.raw_event import token_of
from pipelines.source.resume import ResumePoint
from pipelines.source.retry_policy import Failures, RetryPolicy
from pipelines.source.sharding import refuse_shared_id
from pipelines.source.stages import Selection
from pipelines.source.stream_opening import ANSWER_EVENTS, StreamLimits, check_last_event, open_stream

_SILENCE_SECONDS = 1.0
_CLOSING_SECONDS = 3.0


@dataclass(frozen=True)
class ChangeBatch:
    """Events in stream order (by the field rules already), and the token to go on from after them. No events: only the position moved."""

    events: tuple[bytes, ...]
    resume_token: str
    """The whole token document as Extended JSON: of the last event, or the server's post-batch token at the end of a server batch."""
    oversize_events: tuple[OversizeEvent, ...] = ()
    """Those of *events* that came without their heavy parts."""
    whole: bool = False
    """What was read so far ends inside no transaction. False: it may."""

    @property
    def last_event(self) -> str | None:
        """Cluster time in hex of the last event; None without events."""
        found = field(self.events[-1], b"clusterTime") if self.events else None
        return None if found is None else cluster_time_hex(*timestamp_at(self.events[-1], found[1]))

    @property
    def token_data(self) -> str:
        return token_data(self.resume_token)


class StreamReader:
    """Reads one change stream in a thread, one batch ahead; memory is bounded by two batches.

    Retries what the classifier calls retriable by reopening after the last token it handed over: nothing is lost, nothing comes
    twice. Everything else is raised from `batches` in the caller's thread, after all that was read before it. An event that the server
    cannot send is passed without its heavy parts, and named in the batch that brings it: what that means is the caller's decision.

    Args:
        client: Opened with ``raw=True``, so that events stay bytes.
        start: Where to begin; the reader moves on from there by itself.
        expanded_events: Ask for ``showExpandedEvents`` (6.0 and newer).
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
    ) -> None:
        self._client = client
        self._selection = selection
        self._fields = FieldRewriter(selection.fields)
        self._unique_ids = limits.unique_ids
        self._start = start
        self._limits = limits
        self._retry_policy = retry_policy
        self._expanded = expanded_events
        self._locator = OversizeLocator(ANSWER_EVENTS)
        self._begun: tuple[bytes, ...] = ()  # of the next batch
        self._whole = False  # the last batch
        self._queue: queue.SimpleQueue[ChangeBatch | BaseException] = queue.SimpleQueue()
        self._taken = threading.Event()  # the queue is empty
        self._taken.set()
        self._stop = threading.Event()
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strandline-stream", daemon=True)

    def batches(self, goes_on: Callable[[], bool] = lambda: True) -> Generator[ChangeBatch]:
        """Batches for ever; one without events about every ``poll_interval_ms`` while the stream is idle. Closing stops the thread.

        Args:
            goes_on: Asked about every second while none comes, as when the source is away; False ends the batches.
        """
        self._thread.start()
        try:
            while (item := self._next(goes_on)) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.close()

    def _next(self, goes_on: Callable[[], bool]) -> ChangeBatch | BaseException | None:
        self._wanted.set()
        try:
            while True:
                try:
                    item = self._queue.get(timeout=_SILENCE_SECONDS)
                    self._taken.set()
                    return item
                except queue.Empty:
                    if not goes_on():
                        return None
        finally:
            self._wanted.clear()

    def close(self) -> None:
        """Stop reading. Batches not handed over are dropped: their events are still in the source. Whoever waits for a server that does
        not answer is not waited for: what it will hear ends it."""
        self._stop.set()
        self._thread.join(_CLOSING_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                failures = Failures()
                self._retry_policy.call(partial(self._read_until_error, failures), self._stop, failures)
        except BaseException as error:  # noqa: BLE001  # why: whatever ends the thread must reach the caller, who raises it
            self._put(error)

    def _read_until_error(self, failures: Failures) -> None:
        """Until the stream is closed by an invalidate (the next round goes on with startAfter) or by an event that is too large."""
        if self._stop.is_set():
            return
        with translate_errors("opening the change stream", phase=self._start.phase):
            try:
                check_last_event(self._client, self._selection, self._start, expanded_events=self._expanded)
                stream = self._open()
            except mongo.PyMongoError as error:
                self._meet_oversize(error)
                return
        self._begun = ()  # it comes again: the stream goes on after the last batch
        with translate_errors("reading the change stream", phase="reading"), stream:
            while self._is_taken() and stream.alive:
                batch, failure = self._fill(stream)
                if batch is not None and self._hand_over(batch):
                    failures.clear()
                    self._locator.lost_connections = 0
                if failure is not None:
                    self._meet_oversize(failure)
                    return
                if batch is not None and self._locator.came(len(batch.events)):
                    return

    def _open(self, *more: Stage) -> ChangeStream[RawBSONDocument]:
        if self._limits.oversize == "split":
            more = (*more, SPLIT_STAGE)
        one_by_one = self._locator.is_on
        return open_stream(
            self._client, self._selection, self._start, self._limits, self._expanded, more=more, one_by_one=one_by_one
        )

    def _hand_over(self, batch: ChangeBatch) -> bool:
        """Whether the stream moved on by it."""
        if not self._put(batch):
            return False
        moved = bool(batch.events) or batch.resume_token != self._start.token
        self._start = ResumePoint(token=batch.resume_token, last_event=batch.last_event or self._start.last_event)
        return moved

    def _rewritten(self, raw: bytes) -> bytes:
        """An event by the field rules. Raises where its document may stand on several shards."""
        return self._fields.event(raw if self._unique_ids else refuse_shared_id(raw))

    def _meet_oversize(self, failure: Exception) -> None:
        """Read on in smaller steps, or pass the event where it is certain which one it is.

        Raises:
            Exception: *failure*, where it is none of that, or is a lost connection that nothing explains so far: it counts as any other.
            ConfigurationError: Even without its heavy parts the event is too large.
        """
        if not self._locator.suspects(failure):
            raise failure
        repeated = self._locator.refused()
        if 0 <= self._limits.retry_limit < repeated and self._passed(failure):
            return
        if self._locator.is_lost_connection(failure):
            raise failure
        self._stop.wait(self._retry_policy.delay_seconds(self._locator.repeated))

    def _passed(self, failure: Exception) -> bool:
        """Hand over the next event without its heavy parts; not where there is none, or where it does not explain *failure*."""
        try:
            with self._open(STRIP_STAGE) as stream:
                event, token = stream.try_next(), stream.resume_token
        except mongo.OperationFailure as error:
            raise (key_too_large() if self._locator.suspects(error) else error) from None
        if event is None:
            return False
        stripped = stripped_event(self._rewritten(bytes(event.raw)))
        explained = self._locator.explains(failure, stripped)
        if explained:
            self._hand_over(
                ChangeBatch((stripped,), token_json(token), (OversizeEvent(stripped, self._locator.refusals, None),))
            )
        self._locator.ended()
        return explained

    def _fill(self, stream: ChangeStream[RawBSONDocument]) -> tuple[ChangeBatch | None, Exception | None]:
        """Collect events until the batch is full; once the wait is over, whatever is there goes as soon as the writer is free.

        What fails comes beside what was read before it: that is not read again.
        """
        limits, caught_up = self._limits, False
        builder = BatchBuilder(self._begun, max_events=limits.max_batch_size, max_bytes=limits.max_bytes)
        assembler = EventAssembler(
            self._rewritten,
            split=limits.oversize == "split",
            skip_threshold=limits.skip_threshold,
            strict=limits.strict,
            show_keys=limits.show_keys,
        )
        token, is_past, failure = stream.resume_token, False, None  # past: the stream is behind what the batch holds
        deadline = time.monotonic() + limits.poll_interval_ms / 1000
        while not self._stop.is_set():
            is_due = self._wanted.is_set() and time.monotonic() >= deadline
            if not assembler.waiting and builder.may_end(due=is_due):
                break
            try:
                answer = stream.try_next()
                is_past |= answer is not None
                event = None if answer is None else assembler.take(bytes(answer.raw))
            except (mongo.PyMongoError, StrandlineError) as error:
                failure = error
                break
            if assembler.waiting:
                continue
            if event is not None and not builder.take(event):
                break
            is_past = False
            if event is None and (builder.is_ending or not stream.alive or (builder.events and self._wanted.is_set())):
                caught_up = not self._client.is_mongos  # a shard may still have events of the transaction
                break
        self._begun, events = builder.rest, tuple(builder.events)
        if not is_past:
            token = stream.resume_token  # it is copied whole: once, not for every event
        elif events:
            token = token_of(events[-1])
        self._whole = builder.is_whole(caught_up=caught_up) if events else self._whole or caught_up
        return (
            None
            if token is None
            else ChangeBatch(events, token_json(token), tuple(assembler.oversize_events), self._whole)
        ), failure

    def _is_taken(self) -> bool:
        """Wait until the batch before has been taken: no more than one is read ahead. False where none will be taken any more."""
        while not self._stop.is_set():
            if self._taken.wait(timeout=0.1):
                return True
        return False

    def _put(self, item: ChangeBatch | BaseException) -> bool:
        if not self._is_taken():
            return False
        self._taken.clear()
        self._queue.put(item)
        return True
