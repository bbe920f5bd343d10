"""The change stream as batches: filled while the one before is being committed, each with the token that ends it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import errors as mongo
from pymongo.change_stream import ChangeStream
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from pipelines.source.client import AnyClient, asking, token_data, token_json
from pipelines.source.errors import as_strandline_error, classify
from pipelines.source.fields import FieldRewriter
from pipelines.source.resume import ResumePoint
from pipelines.source.stages import Selection, stream_stages


@dataclass(frozen=True)
class ChangeBatch:
    """Events in stream order (by the field rules already), and the token to go on from after them. No events: only the position moved."""

    events: tuple[bytes, ...]
    resume_token: str
    """The whole token document as Extended JSON: of the last event, or the server's post-batch token at the end of a server batch."""

    @property
    def token_data(self) -> str:
        return token_data(self.resume_token)


@dataclass(frozen=True)
class StreamLimits:
    """When a batch is full: events, bytes, or the wait since its first event, whichever comes first."""

    max_batch_size: int = 50_000
    max_bytes: int = 128 * 1024 * 1024
    poll_interval_ms: int = 200
    max_await_time_ms: int = 200
    connect_max_attempts: int = 16


_NO_EVENTS = StreamLimits(max_batch_size=0)


class StreamReader:
    """Reads one change stream in a thread, one batch ahead; memory is bounded by two batches.

    Retries what the classifier calls retriable by reopening after the last token it handed over: nothing is lost, nothing comes
    twice. Everything else is raised from `batches` in the caller's thread.

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
        expanded_events: bool = True,
    ) -> None:
        self._client = client
        self._selection = selection
        self._fields = FieldRewriter(selection.fields)
        self._start = start
        self._limits = limits
        self._expanded = expanded_events
        self._queue: queue.Queue[ChangeBatch | BaseException] = queue.Queue(maxsize=1)
        self._stop = threading.Event()
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strandline-stream", daemon=True)

    def batches(self) -> Generator[ChangeBatch]:
        """Batches for ever; one without events about every ``poll_interval_ms`` while the stream is idle. Closing stops the thread."""
        self._thread.start()
        try:
            while True:
                self._wanted.set()
                item = self._queue.get()
                self._wanted.clear()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.close()

    def close(self) -> None:
        """Stop reading. Batches not handed over are dropped: their events are still in the source."""
        self._stop.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(timeout=0.05)

    def _run(self) -> None:
        # The retry counter starts anew whenever a batch was read: only a source that stays away exhausts it.
        while not self._stop.is_set():
            before = self._start
            try:
                for attempt in self._retrying():
                    with attempt:
                        self._read_until_error()
            except mongo.PyMongoError as error:
                if classify(error) == "retriable" and self._start is not before:
                    continue
                self._put(as_strandline_error(error, doing="the change stream"))
                return
            except BaseException as error:  # noqa: BLE001  # why: whatever ends the thread must reach the caller, who raises it
                self._put(error)
                return

    def _retrying(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, mongo.PyMongoError) and classify(error) == "retriable"),
            wait=wait_exponential(multiplier=1, max=120),
            stop=stop_after_attempt(self._limits.connect_max_attempts),
            sleep=self._sleep,
            reraise=True,
        )

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _read_until_error(self) -> None:
        with open_stream(self._client, self._selection, self._start, self._limits, self._expanded) as stream:
            while not self._stop.is_set() and stream.alive:
                batch = self._fill(stream)
                if batch is not None and self._put(batch):
                    self._start = ResumePoint(token=batch.resume_token)
        # Not alive: an invalidate closed it; the next round goes on with startAfter.

    def _fill(self, stream: ChangeStream[RawBSONDocument]) -> ChangeBatch | None:
        """Collect events until the batch is full; once the wait is over, whatever is there goes as soon as the writer is free."""
        limits, size = self._limits, 0
        events: list[bytes] = []
        deadline = time.monotonic() + limits.poll_interval_ms / 1000
        while len(events) < limits.max_batch_size and size < limits.max_bytes and not self._stop.is_set():
            event = stream.try_next()
            if event is not None:
                raw = self._fields.event(bytes(event.raw))
                events.append(raw)
                size += len(raw)
            elif not stream.alive or (events and self._wanted.is_set()):
                break
            if self._wanted.is_set() and time.monotonic() >= deadline:
                break
        token = stream.resume_token
        return None if token is None else ChangeBatch(tuple(events), token_json(token))

    def _put(self, item: ChangeBatch | BaseException) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False


def open_stream(
    client: AnyClient, selection: Selection, start: ResumePoint, limits: StreamLimits, expanded_events: bool
) -> ChangeStream[RawBSONDocument]:
    """I/O: opens a change stream; with a client opened as ``raw=True`` its events stay bytes.

    Raises:
        PyMongoError: As the server says; `classify` judges it.
    """
    options: dict[str, Any] = {
        "max_await_time_ms": limits.max_await_time_ms,
        "batch_size": min(limits.max_batch_size, 16_384),
        **({"show_expanded_events": True} if expanded_events else {}),
        **selection.images.watch_options,
        **start.watch_options,
    }
    stages = stream_stages(selection, None if start.token is None else token_data(start.token), excluding=expanded_events)
    if selection.scope == "deployment":
        return client.watch(stages, **options)
    database = client[str(selection.database)]
    if selection.scope == "database":
        return database.watch(stages, **options)
    return database[str(selection.collection)].watch(stages, **options)


def token_at(client: AnyClient, selection: Selection, start: ResumePoint = ResumePoint(), *, expanded_events: bool = True) -> str:
    """I/O: the token that stands right before the first event from *start* on (Extended JSON), from a throw-away stream.

    Without a start it is the token of the present: later than every event that is committed now. Nothing is parsed: the server makes it.
    """
    with asking("opening a change stream"), open_stream(client, selection, start, _NO_EVENTS, expanded_events) as stream:
        while stream.resume_token is None:  # a first batch of size 0 always carries the post-batch token; older servers answer late
            stream.try_next()
        return token_json(stream.resume_token)
