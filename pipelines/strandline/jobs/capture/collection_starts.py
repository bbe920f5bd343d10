"""Starts of single collections (``capture.starts``): the gap before each. Capture leaves out the events in it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from strandline.bronze.gaps import commit_starts
from strandline.bronze.offsets import Committed
from strandline.errors import ConfigurationError
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.offset_target import configured_start
from strandline.model.gap import gaps_of
from strandline.model.namespaces import namespace_of
from strandline.model.position import cluster_time_hex, snapshot_position
from strandline.model.timestamps import seconds_of
from strandline.settings.snapshot import NO_BACKFILL
from strandline.source.change_batch import ChangeBatch, cluster_time
from strandline.source.client import token_data
from strandline.source.listing import captured_collections
from strandline.source.resume import ResumePoint

_WAY: Final = "leave the collection out of capture.starts: a snapshot reads it"
_log = logging.getLogger("strandline.capture")


def start_times(session: CaptureSession, collections: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    """Return the cluster time at which ``capture.starts`` begins each of *collections*. None: at no time of its own.

    I/O: reads the source.

    Raises:
        ConfigurationError: No stream can start at one of the times.
    """
    starts = session.settings.starts
    return {
        name: None
        if starts[name] == NO_BACKFILL
        else configured_start(starts[name], session.oplog, f"capture.starts.{name}", _WAY)
        for name in collections
    }


def commit_first_starts(
    session: CaptureSession, starts: dict[str, tuple[int, int] | None], others: tuple[int, int] | None
) -> None:
    """Record the gap before the start of each existing collection of *starts*.

    I/O: lists the source's collections; one commit to bronze.

    Args:
        others: Cluster time at which a collection without a time of its own begins. None: the source's present.
    """
    present = snapshot_position(*session.oplog.present_time())
    default = present if others is None else cluster_time_hex(*others)
    existing = set(map(str, captured_collections(session.client, session.selection)))
    commit_starts(
        session.writer,
        {name: default if at is None else cluster_time_hex(*at) for name, at in starts.items() if name in existing},
    )


def commit_later_starts(session: CaptureSession, collections: Iterable[str], last: Committed) -> None:
    """Record the gap before the start of *collections*, which the filters of this run include for the first time.

    I/O: as `commit_first_starts`.

    Args:
        last: Last committed offset.

    Raises:
        ConfigurationError: The stream has passed the start of one of them.
    """
    writer, starts = session.writer, session.settings.starts
    recorded = {gap.collection: gap.before for gap in gaps_of(writer.tables.properties(writer.table)) if gap.is_start}
    # An interrupted run has begun the others, and the stream may have passed them since.
    times = start_times(
        session,
        [name for name in collections if recorded.get(name) != cluster_time_hex(seconds_of(starts[name]) or 0, 0)],
    )
    for name, at in times.items():
        token = None if at is None else session.oplog.token_at(ResumePoint(cluster_time=at))
        if token is not None and last.resume_token is not None and token_data(token) < token_data(last.resume_token):
            raise ConfigurationError(
                f"the stream has passed capture.starts.{name} {starts[name]!r}",
                next_step=f"strandline stop, strandline offsets alter --to {starts[name]}, strandline start; or {_WAY}",
            )
    if times:
        commit_first_starts(session, times, None)


class EventsBeforeStart:
    """Leaves out events of a collection before its start, which the stream passes because of another collection.

    I/O at construction: reads properties of bronze.
    """

    def __init__(self, session: CaptureSession) -> None:
        writer, starts = session.writer, session.settings.starts
        gaps = gaps_of(writer.tables.properties(writer.table)) if starts else ()
        self._starts = {gap.collection: gap.before for gap in gaps if gap.is_start and gap.collection in starts}
        for name in sorted(starts.keys() - self._starts.keys()):
            _log.info(
                "capture.starts moves no start of %s: capture had it before, or it did not exist at the start",
                name,
            )

    def before_commit(self, change: ChangeBatch) -> ChangeBatch:
        """Return *change* without the events before their collection's start."""
        first = change.first_event
        if first is None or not any(start > f"{first}:" for start in self._starts.values()):
            return change
        oversize = (event for event in change.oversize_events if self._has_begun(event.event))
        return replace(change, events=tuple(filter(self._has_begun, change.events)), oversize_events=tuple(oversize))

    def _has_begun(self, event: bytes) -> bool:
        start = self._starts.get(str(namespace_of(event)))
        return start is None or f"{cluster_time(event)}:" > start
