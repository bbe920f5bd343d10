"""The change stream as the batches of a Spark stream. Spark's driver reads it, with the reader that capture has."""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa

from strandline.bronze.envelope import Batch, BatchEnd, control_table, stream_table
from strandline.bronze.event import parse_event
from strandline.bronze.stream_rows import SLICE
from strandline.errors import ConfigurationError
from strandline.jobs.capture.beginning import present_token
from strandline.jobs.offset_target import configured_start
from strandline.jobs.spark_source.opened_source import OpenedSource
from strandline.jobs.spark_source.snapshot_rows import RowReader, control_reader, snapshot_rows
from strandline.jobs.spark_source.stream_position import Position
from strandline.source.change_batch import ChangeBatch
from strandline.source.client import token_data
from strandline.source.resume import ResumePoint, resume_point

_NEW_CHECKPOINT: Final = "use a new checkpointLocation, which continues after bronze's last batch"
_PARTITION_BYTES: Final = 16 * 1024 * 1024
"""Target size of the events in one partition. Spark refuses a task above 128 MiB (``spark.rpc.message.maxSize``)."""


@dataclass
class SourceStream:
    """Batches of one stream, in order. The events of the newest batch are kept until the next one is asked for.

    Args:
        bronze: Position that bronze held when the query was defined. None: the rows go elsewhere.
    """

    source: OpenedSource
    bronze: Position | None = None
    _at: Position | None = field(default=None, init=False)
    """Position to which the open reader has been followed."""
    _batches: Generator[ChangeBatch] | None = field(default=None, init=False)
    _newest: tuple[Position, ChangeBatch] | None = field(default=None, init=False)
    """The newest batch with the position of its end."""
    _target: str | None = field(default=None, init=False)
    _moved_at: float = field(default_factory=time.monotonic, init=False)
    _follows_bronze: bool = field(default=False, init=False)
    """True: the first batch of this query continued bronze."""

    def end_at_present(self) -> None:
        """Deliver only what the source has committed now. I/O: asks the source."""
        self._target = present_token(self.source.oplog)

    def latest(self, start: Position) -> Position:
        """Return the end of the next batch after *start*; *start* itself if there is none yet.

        I/O: reads the change stream, for at most ``capture.poll_interval_ms`` if no event comes.

        Raises:
            ResumePointLost: The source no longer has the history behind *start*.
            ConfigurationError: Another writer has continued bronze.
        """
        self._check_bronze(start, start)
        if start.token is None:
            return self._beginning(start)
        if start != self._at or self._batches is None:
            self._reopen(start)  # also checks that the source has the history behind *start*
        elif self._target is not None and self._newest is not None and self._newest[1].reaches(self._target):
            return start
        while True:
            change = self._next()
            ended = self._target is not None and change.reaches(self._target)
            waited = time.monotonic() - self._moved_at >= self.source.settings.heartbeat_interval_ms / 1000
            if change.events or ((waited or ended) and change.resume_token != start.token):
                return self._delivered(start, change)
            if ended or self._target is None:
                return start

    def readers(self, start: Position, end: Position) -> list[RowReader]:
        """Return the readers of the rows between two positions. A repeated call gives the same events.

        I/O: for a snapshot, plans it; after a restart, reads the events again from the source.
        """
        if start == end:
            return []
        self._check_bronze(start, end)
        row_end = BatchEnd(end.token, None, end.epoch, end.last_event, end.ends_outside_transaction)
        if end.snapshot_id is not None:
            control, readers = snapshot_rows(self.source, end.snapshot_id, may_read_later=True)
            return [control_reader([*control, self._heartbeat(end, row_end)]), *readers]
        events = self._newest[1].events if self._newest and self._newest[0] == end else self._events(start, end)
        if not events:
            return [control_reader([self._heartbeat(end, row_end)])]
        batch = Batch(end.batch, events, row_end, self.source.stamp(), self.source.stored_json)
        fitting = len(events) * _PARTITION_BYTES // sum(map(len, events))
        return [partial(_parsed, part) for part in batch.parts(max(1, min(SLICE, fitting)))]

    def close(self) -> None:
        """Stop reading."""
        if self._batches is not None:
            self._batches.close()
        self.source.close()

    def _check_bronze(self, start: Position, reached: Position) -> None:
        """Raise ConfigurationError if this checkpoint does not continue bronze."""
        if self.bronze is None:
            return
        if self.bronze.batch > reached.batch:
            raise ConfigurationError(
                f"bronze holds batch {self.bronze.batch}, and this checkpoint ends at batch {reached.batch}: "
                "another writer has continued",
                next_step=_NEW_CHECKPOINT,
            )
        # A batch number alone tells nothing: an older copy of bronze may have got as many batches since.
        same = next((position for position in (start, reached) if position.batch == self.bronze.batch), None)
        is_other = same is not None and same.token != self.bronze.token
        if not self._follows_bronze and (
            is_other or start.batch > self.bronze.batch or start.epoch != self.bronze.epoch
        ):
            raise ConfigurationError(
                f"bronze held batch {self.bronze.batch} when into_bronze looked, and this checkpoint is at batch "
                f"{start.batch}: bronze was restored to an older version, it is an older copy that another writer has"
                " continued, or into_bronze was not called for this start",
                next_step=f"call into_bronze again. If this error comes again, {_NEW_CHECKPOINT}",
            )
        self._follows_bronze = True

    def _beginning(self, start: Position) -> Position:
        """Return the end of the first batch: the token of the stream's start, and a snapshot if the mode wants one."""
        at = configured_start(self.source.settings.start_at, self.source.oplog)
        token = self.source.oplog.token_at(resume_point(configured=at))
        snapshot_id = uuid.uuid4().hex if self.source.settings.snapshot_policy.first else None
        return Position(start.batch + 1, start.epoch, token, snapshot_id=snapshot_id)

    def _reopen(self, start: Position) -> None:
        if self._batches is not None:
            self._batches.close()
        self._at, self._newest = start, None
        self._batches = self.source.reader(_resume_point(start)).batches()

    def _next(self) -> ChangeBatch:
        """Return the next batch of the reader. An error of the reader ends it: the next call opens another one."""
        assert self._batches is not None
        try:
            return next(self._batches)
        except BaseException:
            self._batches = None
            raise

    def _delivered(self, start: Position, change: ChangeBatch) -> Position:
        end = Position(
            start.batch + 1,
            start.epoch,
            change.resume_token,
            change.last_event or start.last_event,
            ends_outside_transaction=change.ends_outside_transaction,
        )
        self._at, self._newest, self._moved_at = end, (end, change), time.monotonic()
        return end

    def _events(self, start: Position, end: Position) -> list[bytes]:
        """Read the events after *start* and up to *end* again. A restarted query repeats its last batch."""
        if start.token is None or end.token is None:
            return []
        events: list[bytes] = []
        last = token_data(end.token)
        batches = self.source.reader(_resume_point(start)).batches()
        try:
            for change in batches:
                inside = [event for event in change.events if parse_event(event).token <= last]
                events += inside
                if len(inside) < len(change.events) or change.token_data >= last:
                    break
        finally:
            batches.close()
        return events

    def _heartbeat(self, end: Position, row_end: BatchEnd) -> pa.Table:
        """Return the row that ends a batch without events."""
        return control_table(self.source.stamp(), batch=end.batch, end=row_end)


def _resume_point(start: Position) -> ResumePoint:
    return ResumePoint(token=start.token, last_event=start.last_event)


def _parsed(batch: Batch) -> Iterator[pa.RecordBatch]:
    yield from stream_table(batch).to_batches()
