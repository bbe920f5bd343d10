"""Values that bronze stores of one change event besides its bytes. Pure.

The walk of `parse_event` takes about 12 µs per event. Such a walk was more than half of the CPU time of a capture.
Nearly all events have one of a few layouts. Two regular expressions read these in 3 µs, because they run in C. An event
with another layout, or with damaged bytes, is left to the walk.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Final

from strandline.bronze.event import ChangeEvent, letter_of, namespace_of, parse_event
from strandline.model.bson import raw as rb
from strandline.model.bson.merge_key import id_merge_key, object_id_key

EventRow = tuple[
    str,
    str,
    str,
    str | None,
    str | None,
    str | None,
    str | None,
    int,
    int,
    str | None,
    int | None,
    int | None,
    int | None,
]
"""Values of one event, in the order of `EVENT_COLUMNS`. A plain tuple: an object takes longer to make."""
EVENT_COLUMNS: Final = (
    *("position", "op", "operation_type", "db", "collection", "collection_uuid", "key"),
    *("seconds", "increment", "session", "txn_number", "wall_time", "document_size"),
)

# Fields in the order of servers. A length is in one group with content that is the same in many events, so that a cache
# holds the result of its check.
_BEGINNING: Final = re.compile(
    rb"(....)(?:\x12txnNumber\0(.{8})\x03lsid\0(\x48\0\0\0\x05id\0\x10\0\0\0\x04.{16}\x05uid\0\x20\0\0\0\0.{32}\0))?+"
    rb"\x03_id\0(....\x02_data\0....)([0-9A-F]*+)\0\0"
    rb"\x02operationType\0(....[A-Za-z]++\0)"
    rb"\x11clusterTime\0(.{8})"
    rb"(?:\x05collectionUUID\0\x10\0\0\0\x04(.{16}))?+"
    rb"(?:\x09wallTime\0(.{8}))?+"
    rb"(?:\x03fullDocument\0(....)|\x0afullDocument\0)?+",
    re.DOTALL,
).match
_AFTER_DOCUMENT: Final = re.compile(
    rb"\x03ns\0(....\x02db\0....[^\0]*+\0\x02coll\0....[^\0]*+\0\0)"
    rb"\x03documentKey\0(....)(?:(?<=\x16\0\0\0)\x07_id\0(.{12})\0)?+",
    re.DOTALL,
).match
_NOT_READ: Final = re.compile(rb"\x03(?:updateDescription|fullDocumentBeforeChange)\0(....)", re.DOTALL).match
_LENGTH: Final = 4

_int32 = struct.Struct("<i").unpack
_int64 = struct.Struct("<q").unpack
_increment_and_seconds = struct.Struct("<II").unpack


def event_row(raw: bytes) -> EventRow:
    """Return the values of an event.

    Raises:
        MalformedBson: See `parse_event`.
        ValueError: libbson refuses the session of a transaction.
    """
    return _usual_row(raw) or _walked_row(parse_event(raw))


def _usual_row(raw: bytes) -> EventRow | None:
    """Return the values of an event with a usual layout. None: another layout, or damaged bytes."""
    begun = _BEGINNING(raw)
    if begun is None:
        return None
    length, txn_number, session, lengths, token, word, time, uuid, wall_time, document_length = begun.groups()
    at, document_size = begun.end(), None
    if document_length is not None:
        (document_size,) = _int32(document_length)
        if document_size < 0:
            return None
        at += document_size - _LENGTH
    followed, operation = _AFTER_DOCUMENT(raw, at), _operation(word)
    if followed is None or operation is None or _token_length(lengths) != len(token):
        return None
    namespace, key_length, object_id = followed.groups()
    names, key_at = _names(namespace), followed.start(2)
    if names is None or not _ends(raw, key_at, _int32(key_length)[0], _int32(length)[0]):
        return None
    increment, seconds = _increment_and_seconds(time)
    return (
        f"{time[::-1].hex()}:{token.decode()}",  # as `streamed_position` returns it, without its formatting of numbers
        *operation,
        *names,
        None if uuid is None else uuid.hex(),
        object_id_key(object_id) if object_id is not None else id_merge_key(raw, key_at),
        seconds,
        increment,
        None if session is None else _session_json(session),
        None if txn_number is None else _int64(txn_number)[0],
        None if wall_time is None else _int64(wall_time)[0],
        document_size,
    )


def _ends(raw: bytes, at: int, size: int, length: int) -> bool:
    """Return True if the event of *length* bytes ends after the value at *at*, or after fields that are not read."""
    end = length - 1
    while size >= 0 and (at := at + size) < end:
        skipped = _NOT_READ(raw, at)
        if skipped is None:
            return False
        at, size = skipped.start(1), _int32(skipped[1])[0]
    return size >= 0 and at == end and length == len(raw) and not raw[end]


@lru_cache(maxsize=1_000)
def _token_length(lengths: bytes) -> int:
    """Return the digits of a token's ``_data``, from the lengths of both; -1 if the lengths do not agree."""
    around, data = _int32(lengths[:_LENGTH])[0], _int32(lengths[-_LENGTH:])[0]
    return int(data - 1) if around == data + len(lengths) + 1 else -1


@lru_cache(maxsize=1_000)
def _operation(word: bytes) -> tuple[str, str] | None:
    """Return op and operation type; None if the length of the text is wrong."""
    if _int32(word[:_LENGTH])[0] != len(word) - _LENGTH:
        return None
    return letter_of(word[_LENGTH:-1]), word[_LENGTH:-1].decode()


@lru_cache(maxsize=10_000)
def _names(namespace: bytes) -> tuple[str | None, str | None] | None:
    """Return database and collection; None if a length is wrong."""
    try:
        return namespace_of(namespace) if _int32(namespace[:_LENGTH])[0] == len(namespace) else None
    except rb.MalformedBson:
        return None


@lru_cache(maxsize=1_000)
def _session_json(session: bytes) -> str:
    """Return a session as JSON. Cached: all events of a transaction have the same."""
    return rb.canonical_json(session)


def _walked_row(event: ChangeEvent) -> EventRow:
    session = event.spans.get(b"lsid")
    return (
        event.position,
        event.op,
        event.operation_type,
        event.db,
        event.collection,
        event.collection_uuid,
        event.key,
        event.seconds,
        event.increment,
        None if session is None else _session_json(event.raw[session[1] : session[2]]),
        event.txn_number,
        event.wall_time,
        event.document_size,
    )
