"""Status of the scheduled collections: their last read and the next one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from strandline.bronze.scheduled_rows import last_read
from strandline.jobs.lake_context import LakeContext
from strandline.model.namespaces import Namespace
from strandline.model.schedule import skipped_text
from strandline.model.table_schemas import bronze_table
from strandline.model.timestamps import span


@dataclass(frozen=True)
class ScheduledStatus:
    """One collection of ``capture.scheduled``."""

    collection: str
    every: str
    read_at: datetime | None = None
    """Begin of the last read, UTC. None: it was never read."""
    seconds: float | None = None
    """Duration of the last read."""
    documents: int | None = None
    """Documents that the last read found."""
    written: int | None = None
    """Rows that the last read wrote: new, changed and gone documents."""
    due_at: datetime | None = None
    """Time of the next read, UTC. None: now."""
    problem: str | None = None
    """Reason for which the last read wrote nothing, or the reads that were skipped. None: no problem."""

    def __str__(self) -> str:
        name = f"{self.collection} every {self.every}"
        if self.read_at is None or self.due_at is None:
            return f"{name}: not read yet"
        if self.seconds is not None:
            counts = f"{self.documents} documents in {span(self.seconds)}, {self.written} rows written"
            name += f": {counts} at {self.read_at:%Y-%m-%d %H:%M:%S}"
        problem = f" ({self.problem})" if self.problem else ""
        return f"{name}{problem}, next at {self.due_at:%Y-%m-%d %H:%M:%S} UTC"


def scheduled_status(ctx: LakeContext) -> Iterator[ScheduledStatus]:
    """Yield the state of each collection of ``capture.scheduled``. I/O: reads bronze."""
    capture, bronze = ctx.settings.capture, bronze_table(ctx.settings.source.name)
    for name in capture.scheduled:
        schedule = capture.schedule_of(name)
        last = last_read(ctx.tables, bronze, Namespace.parse(name)) if ctx.tables.exists(bronze) else None
        if last is None:
            yield ScheduledStatus(name, schedule.every)
            continue
        due_at = schedule.due_after(last)
        if last.refusal is not None:
            yield ScheduledStatus(name, schedule.every, last.began, due_at=due_at, problem=last.refusal)
            continue
        skipped = schedule.skipped(last)
        problem = skipped_text(schedule, last) if skipped else None
        yield ScheduledStatus(
            name, schedule.every, last.began, last.seconds, last.documents, last.written, due_at, problem
        )
