"""Bronze rows from raw change events. Pure: bytes in, Arrow out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from strandline import __version__
from strandline.bronze.event_row import EVENT_COLUMNS, event_row
from strandline.bronze.json_columns import json_columns

_TRUNCATED = pa.list_(pa.struct([("field", pa.string()), ("new_size", pa.int32())]))
_UPDATE = pa.struct(
    [
        ("updated_fields", pa.string()),
        ("removed_fields", pa.list_(pa.string())),
        ("truncated_arrays", _TRUNCATED),
        ("disambiguated_paths", pa.string()),
    ]
)
_SOURCE = pa.struct(
    [
        ("version", pa.string()),
        ("name", pa.string()),
        ("ts_ms", pa.int64()),
        ("snapshot", pa.string()),
        ("ord", pa.int32()),
        ("lsid", pa.string()),
        ("txn_number", pa.int64()),
        ("wall_time", pa.int64()),
    ]
)
TIME = pa.timestamp("us", tz="UTC")

SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("epoch", pa.int32()),
        ("position", pa.string()),
        ("op", pa.string()),
        ("operation_type", pa.string()),
        ("db", pa.string()),
        ("collection", pa.string()),
        ("collection_uuid", pa.string()),
        ("snapshot_id", pa.string()),
        ("document_key", pa.string()),
        ("key", pa.string()),
        ("after", pa.string()),
        ("before", pa.string()),
        ("update_description", _UPDATE),
        ("source", _SOURCE),
        ("cluster_time", TIME),
        ("captured_at", TIME),
        ("chunk", pa.int32()),
        ("resume_token", pa.string()),
        ("last_event", pa.string()),
        ("ends_outside_transaction", pa.bool_()),
        ("document_size", pa.int32()),
        ("envelope", pa.binary()),
        ("writer", pa.string()),
    ]
)
"""Arrow schema of bronze: the columns of `BRONZE_DDL` in their order. A test compares the two."""


@dataclass(frozen=True)
class Stamp:
    """Values shared by all rows of one commit."""

    source: str
    writer: str
    captured_at_us: int
    """Microseconds since the epoch, UTC."""


@dataclass(frozen=True)
class BatchEnd:
    """Values that the last row of a streamed batch carries besides its event."""

    resume_token: str | None
    """Resume token after the batch, as Extended JSON. None after a reset: the next capture starts at now."""
    snapshot_id: str | None
    """Id of the snapshot that is still running. None: no snapshot runs."""
    epoch: int = 1
    """Epoch of the next batch."""
    last_event: str | None = None
    """Cluster time of the last event, in hex. A source without that event was restored to an earlier time."""
    ends_outside_transaction: bool | None = None
    """True if the batch is known to end outside a transaction. False or None: unknown."""


@dataclass(frozen=True)
class Batch:
    """At least one event, in stream order, as the server sent them."""

    number: int
    events: Sequence[bytes]
    end: BatchEnd | None
    """Values of the last row. None: this is a part of a batch, and not its last part."""
    stamp: Stamp
    stored_json: bool = False
    """True: fill `JSON_COLUMNS` now. False: they stay null, and readers derive them from the envelope."""

    def parts(self, size: int) -> Iterator[Batch]:
        """Yield the events in order, in parts of at most *size*."""
        for start in range(0, len(self.events), size):
            beyond = start + size
            yield replace(self, events=self.events[start:beyond], end=self.end if beyond >= len(self.events) else None)


@dataclass(frozen=True)
class Note:
    """The purpose of a batch without events."""

    op: Literal["heartbeat", "offset", "gap"] = "heartbeat"
    operation_type: str | None = None
    content: str | None = None
    """Details, as JSON."""


HEARTBEAT = Note()


def stream_table(batch: Batch) -> pa.Table:
    """Return the rows of a streamed batch, or of a part: one row per event, in stream order.

    Raises:
        MalformedBson: An event is damaged below its top level.
    """
    rows = zip(*map(event_row, batch.events), strict=True)
    events = dict(zip(EVENT_COLUMNS, rows, strict=True))
    size, stamp, end = len(batch.events), batch.stamp, batch.end
    before_last = [None] * (size - 1)
    columns: dict[str, object] = {
        **events,
        "batch": pa.repeat(pa.scalar(batch.number, pa.int64()), size),
        "source": _source_column(events, stamp),
        "cluster_time": pa.array([seconds * 1_000_000 for seconds in events["seconds"]], pa.int64()).cast(TIME),
        "captured_at": constant_time(stamp, size),
        "snapshot_id": [*before_last, end.snapshot_id if end else None],
        "resume_token": [*before_last, end.resume_token if end else None],
        "epoch": [*before_last, end.epoch if end else None],
        "last_event": [*before_last, end.last_event if end else None],
        "ends_outside_transaction": [*before_last, end.ends_outside_transaction if end else None],
        "envelope": pa.array(batch.events, pa.binary()),
        "writer": pa.repeat(pa.scalar(stamp.writer), size),
    }
    if batch.stored_json:
        columns |= json_columns(zip(events["op"], batch.events, strict=True))
    return filled(columns, size)


def control_table(stamp: Stamp, *, batch: int, end: BatchEnd, note: Note = HEARTBEAT) -> pa.Table:
    """Return the only row of a batch without events. So every batch has exactly one row that ends it."""
    columns: dict[str, object] = {
        "batch": [batch],
        "op": [note.op],
        "operation_type": [note.operation_type],
        "after": [note.content],
        "source": constant_source(stamp, 1, "false"),
        "captured_at": constant_time(stamp, 1),
        "snapshot_id": [end.snapshot_id],
        "resume_token": [end.resume_token],
        "epoch": [end.epoch],
        "last_event": [end.last_event],
        "ends_outside_transaction": [end.ends_outside_transaction],
        "writer": [stamp.writer],
    }
    return filled(columns, 1)


def _source_column(events: Mapping[str, Sequence[Any]], stamp: Stamp) -> pa.StructArray:
    size = len(events["seconds"])
    return pa.StructArray.from_arrays(
        [
            pa.repeat(pa.scalar(__version__), size),
            pa.repeat(pa.scalar(stamp.source), size),
            pa.array([seconds * 1000 for seconds in events["seconds"]], pa.int64()),
            pa.repeat(pa.scalar("false"), size),
            pa.array(events["increment"], pa.int32()),
            pa.array(events["session"], pa.string()),
            pa.array(events["txn_number"], pa.int64()),
            pa.array(events["wall_time"], pa.int64()),
        ],
        fields=list(_SOURCE),
    )


def constant_source(stamp: Stamp, size: int, snapshot: str) -> pa.StructArray:
    values = {"version": __version__, "name": stamp.source, "ts_ms": stamp.captured_at_us // 1000, "snapshot": snapshot}
    return pa.StructArray.from_arrays(
        [pa.repeat(pa.scalar(values.get(f.name), f.type), size) for f in _SOURCE], fields=list(_SOURCE)
    )


def constant_time(stamp: Stamp, size: int) -> pa.Array:
    return pa.repeat(pa.scalar(stamp.captured_at_us, pa.int64()), size).cast(TIME)


def filled(columns: dict[str, object], size: int) -> pa.Table:
    """Return a table with *columns* and nulls for the others, in the order of `SCHEMA`."""
    arrays = []
    for column in SCHEMA:
        values = columns.get(column.name)
        if values is None:
            arrays.append(pa.nulls(size, column.type))
        else:
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, column.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def signal_table(stamp: Stamp, key: str, operation_type: str, content: str) -> pa.Table:
    """Return the row that marks a signal as processed. ``snapshot_id`` holds its *key*: statistics find it there.

    Args:
        content: JSON for the column ``after``.
    """
    columns: dict[str, object] = {
        "op": ["signal"],
        "operation_type": [operation_type],
        "after": [content],
        "source": constant_source(stamp, 1, "false"),
        "captured_at": constant_time(stamp, 1),
        "snapshot_id": [key],
        "writer": [stamp.writer],
    }
    return filled(columns, 1)
