"""Scheduled collections (``capture.scheduled``): their events, and the times of their reads, which bronze tells."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from strandline.bronze.scheduled_rows import last_read
from strandline.jobs.capture_session import CaptureSession
from strandline.model.namespaces import Namespace, name_in_events, namespace_of
from strandline.model.schedule import Schedule, skipped_text
from strandline.source.change_batch import ChangeBatch

_NEVER = datetime.min.replace(tzinfo=UTC)
_log = logging.getLogger("strandline.capture")


class EventsOfScheduled:
    """Leaves out the events of scheduled collections: a drop of a view would end rows that only a read may end."""

    def __init__(self, collections: Iterable[str]) -> None:
        self._names = {namespace: name_in_events(namespace) for namespace in map(Namespace.parse, collections)}

    def before_commit(self, change: ChangeBatch) -> ChangeBatch:
        """Return *change* without these events."""
        if not self._names:
            return change
        return replace(change, events=tuple(event for event in change.events if not self._is_scheduled(event)))

    def _is_scheduled(self, event: bytes) -> bool:
        return any(name in event and namespace_of(event) == namespace for namespace, name in self._names.items())


class ScheduledReads:
    """Times of the next reads. Ask it only while no snapshot runs.

    I/O: reads bronze at the first question, and at the first one after a read.
    """

    def __init__(self, session: CaptureSession) -> None:
        self._writer, settings = session.writer, session.settings
        self._schedules = {name: settings.schedule_of(name) for name in settings.scheduled}
        self._due_at: dict[str, datetime] | None = None
        self._begun: dict[str, datetime] = {}
        self._started = self._now()

    def due(self) -> list[str]:
        """Return the collections to read now."""
        now = self._now() if self._schedules else _NEVER
        return [name for name, at in self._times().items() if at <= now]

    @property
    def is_idle(self) -> bool:
        """Return True if no read is left that was due at the start of the run."""
        return all(at > self._started for at in self._times().values())

    def begin(self, collections: Iterable[str]) -> None:
        """Note that a snapshot reads *collections*. A read that a signal stops is due again after its interval."""
        self._begun |= dict.fromkeys(collections, self._now())
        self._due_at = None

    def _times(self) -> dict[str, datetime]:
        """Return the time of the next read, by collection."""
        if self._due_at is None:
            self._due_at = {name: self._next(name, schedule) for name, schedule in self._schedules.items()}
        return self._due_at

    def _next(self, name: str, schedule: Schedule) -> datetime:
        last = last_read(self._writer.tables, self._writer.table, Namespace.parse(name))
        begun = self._begun.get(name)
        times = [_NEVER if last is None else schedule.due_after(last)]
        if last is not None and schedule.skipped(last):
            _log.warning("%s: %s → set a longer interval (capture.scheduled)", name, skipped_text(schedule, last))
        return max(times if begun is None else [*times, begun + schedule.interval])

    def _now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self._writer.clock_us())
