"""The top level of one change event, read from raw BSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from strandline.model.bson import raw as rb
from strandline.model.bson.merge_key import id_merge_key
from strandline.model.position import streamed_position

_OPS = {b"insert": "c", b"update": "u", b"replace": "u", b"delete": "d"}


@dataclass(slots=True)
class ChangeEvent:
    """The top level of one change event. Nested documents are spans of *raw*."""

    raw: bytes
    operation_type: str = ""
    op: str = "ddl"
    token: str = ""
    seconds: int = 0
    increment: int = 0
    wall_time: int | None = None
    db: str | None = None
    collection: str | None = None
    collection_uuid: str | None = None
    key: str | None = None
    txn_number: int | None = None
    spans: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)
    """Type, start and end of the fields after these."""

    @property
    def position(self) -> str:
        return streamed_position(self.seconds, self.increment, self.token)

    @property
    def document_size(self) -> int | None:
        """Size of ``fullDocument`` in bytes. None: the event has none, or null because the lookup found nothing."""
        span = self.spans.get(b"fullDocument")
        return span[2] - span[1] if span is not None and span[0] == rb.DOCUMENT else None


def parse_event(raw: bytes) -> ChangeEvent:
    """Read the top level of a change event.

    Unknown operation types and fields are kept (``op = 'ddl'``), so a newer server does not stop an older reader.

    Raises:
        MalformedBson: The bytes are damaged, or carry no resume token.
    """
    event = ChangeEvent(raw)
    spans = event.spans
    for kind, name, value, end in rb.elements(raw):
        spans[name] = (kind, value, end)
    event.token = _token_data(raw, spans)
    if (span := spans.get(b"operationType")) is not None:
        word = raw[span[1] + 4 : span[2] - 1]
        event.operation_type, event.op = word.decode("utf-8", "replace"), letter_of(word)
    if (span := spans.get(b"clusterTime")) is not None:
        event.seconds, event.increment = rb.timestamp_at(raw, span[1])
    if rb.LEFT_OUT in spans and event.operation_type and event.op != "d":  # a delete needs only its key
        event.op = "oversize"
    if (span := spans.get(b"wallTime")) is not None and span[0] == rb.DATE:
        event.wall_time = rb.int64_at(raw, span[1])
    if (span := spans.get(b"collectionUUID")) is not None:
        event.collection_uuid = raw[span[1] + 5 : span[2]].hex()
    if (span := spans.get(b"ns")) is not None:
        event.db, event.collection = namespace_of(raw[span[1] : span[2]])
    if (span := spans.get(b"documentKey")) is not None:
        event.key = id_merge_key(raw, span[1])
    if (span := spans.get(b"txnNumber")) is not None:
        event.txn_number = rb.int64_at(raw, span[1])
    return event


def letter_of(operation_type: bytes) -> str:
    """Return the value of ``op`` for an operation type. Any type that is no change of a document is ``ddl``."""
    return _OPS.get(operation_type, "ddl")


def _token_data(raw: bytes, spans: dict[bytes, tuple[int, int, int]]) -> str:
    span = spans.get(b"_id")
    data_span = rb.field(raw, b"_data", span[1]) if span and span[0] == rb.DOCUMENT else None
    if data_span is None:
        raise rb.MalformedBson("a change event has no resume token")
    return rb.text(raw, data_span[1], data_span[2])


@lru_cache(maxsize=10_000)
def namespace_of(ns: bytes) -> tuple[str | None, str | None]:
    """Return database and collection. Cached: a batch has few."""
    names = {name: rb.text(ns, value, end) for _, name, value, end in rb.elements(ns)}
    return names.get(b"db"), names.get(b"coll")
