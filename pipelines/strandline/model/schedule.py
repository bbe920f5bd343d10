"""Schedule of a collection without a change stream, which is read whole at an interval. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from strandline.model.bson import raw as rb
from strandline.model.bson.merge_key import id_merge_key, merge_key
from strandline.model.timestamps import span

INTERVAL: Final = r"^[1-9][0-9]{0,5}[smhd]$"
"""Interval as text: ``30s``, ``15m``, ``1h``, ``1d``."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_ID: Final = ("_id",)


@dataclass(frozen=True)
class Schedule:
    """Interval and document key of one collection.

    Args:
        every: Interval between the begins of two reads, as `INTERVAL`.
        key: Fields that identify a document. A dot leads into a document.
    """

    every: str
    key: tuple[str, ...]

    @property
    def interval(self) -> timedelta:
        return timedelta(seconds=int(self.every[:-1]) * _UNITS[self.every[-1]])

    def skipped(self, last: LastRead) -> int:
        """Return the number of reads that were due while *last* was in progress. They are skipped."""
        return int(last.seconds // self.interval.total_seconds())

    def due_after(self, last: LastRead) -> datetime:
        """Return the time of the next read."""
        return last.began + self.interval * (1 + self.skipped(last))


@dataclass(frozen=True)
class LastRead:
    """The newest whole read of a collection, as bronze has it."""

    began: datetime
    """UTC."""
    seconds: float = 0.0
    """Duration of the read. 0: it was refused."""
    documents: int = 0
    """Documents that the collection had."""
    written: int = 0
    """Rows that were written: new, changed and gone documents."""
    refusal: str | None = None
    """Reason for which nothing was read. None: it was read."""


def skipped_text(schedule: Schedule, last: LastRead) -> str:
    """Return the text about reads that *last* skipped."""
    skipped = schedule.skipped(last)
    reads = "1 read was" if skipped == 1 else f"{skipped} reads were"
    return f"the last read took {span(last.seconds)}, longer than its interval of {schedule.every}, and {reads} skipped"


class UnusableKey(ValueError):
    """A document has no usable key."""


def key_of(document: bytes, key: tuple[str, ...]) -> str:
    """Return the MERGE key of a document, as if its `_id` were the field of *key*, or a document of its fields.

    Raises:
        UnusableKey: A field is missing, or an array.
        MalformedBson: The document is damaged.
    """
    if key == _ID and (usual := id_merge_key(document)) is not None and not usual.startswith("["):
        return usual
    values = [(path, *_value(document, path)) for path in key]
    if len(values) == 1:
        _, kind, value, end = values[0]
        return merge_key(document, kind, value, end)
    fields = (rb.element(path.encode(), kind, document[value:end]) for path, kind, value, end in values)
    compound = rb.document_of(list(fields))
    return merge_key(compound, rb.DOCUMENT, 0, len(compound))


def _value(document: bytes, path: str) -> tuple[int, int, int]:
    """Return kind, begin and end of the value at *path*."""
    span: tuple[int, int, int] | None = (rb.DOCUMENT, 0, len(document))
    for name in path.encode().split(b"."):
        span = rb.field(document, name, span[1]) if span is not None and span[0] == rb.DOCUMENT else None
        if span is not None and span[0] == rb.ARRAY:
            raise UnusableKey(f"the field {path} is an array in a document")
    if span is None:
        raise UnusableKey(f"a document has no field {path}")
    return span
