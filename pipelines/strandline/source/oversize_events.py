"""Change events above 16 MiB, MongoDB's message limit: sent without their documents, or joined from fragments. Pure.

The server fails with 10334 at each read of a reply that holds such an event, and the position does not move. With one
event per reply, all earlier events arrive. Without its documents the large event arrives too, with its token. So no
other event is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pymongo import errors as mongo

from strandline.errors import ConfigurationError, ContractError
from strandline.model.bson import raw as rb
from strandline.model.user_pipeline import Stage
from strandline.source.errors import classify

IMAGE_FIELDS = ("fullDocument", "fullDocumentBeforeChange", "updateDescription")
_IMAGE_FIELDS = tuple(name.encode() for name in IMAGE_FIELDS)

STRIP_STAGE: Stage = {"$project": dict.fromkeys(IMAGE_FIELDS, 0)}
"""Last stage of the pipeline. The filters before it see complete events, and so pass the same events as usual."""

SPLIT_STAGE: Stage = {"$changeStreamSplitLargeEvent": {}}
"""MongoDB 6.0.9 and newer. Must be the last stage."""

_SPLIT = b"splitEvent"
_MAX_LOST_CONNECTIONS = 2
_LARGE_KEY_BYTES = 1024 * 1024


@dataclass(frozen=True)
class OversizeEvent:
    """A change event whose large documents were left out."""

    event: bytes
    """Event as bronze stores it."""
    attempts: int
    """Number of reads."""
    document_bytes: int | None
    """Size in bytes of the largest document that was left out. None: unknown, the server could not send it."""

    @property
    def refused_by_server(self) -> bool:
        """Return True if the server could not send the event; False if it exceeds the configured threshold."""
        return self.document_bytes is None


def stripped_event(raw: bytes) -> bytes:
    """Return the event without documents and update description. The field ``_leftOut`` lists their names."""
    names = (rb.element(b"%d" % number, rb.STRING, rb.string_value(name)) for number, name in enumerate(_IMAGE_FIELDS))
    return rb.document_of([*_without(raw, _IMAGE_FIELDS), rb.element(rb.LEFT_OUT, rb.ARRAY, rb.document_of(names))])


def without_large_documents(raw: bytes, threshold: int) -> tuple[bytes, int] | None:
    """Return the event without documents above *threshold* bytes, and the size of the largest one.

    Return None if no document exceeds the threshold. If only the pre-image is too large, the event stays a normal
    change. If the document is too large, the event is stripped (see `stripped_event`).
    """
    sizes = {
        name: end - value
        for kind, name, value, end in rb.elements(raw)
        if name in _IMAGE_FIELDS[:2] and kind == rb.DOCUMENT
    }
    if max(sizes.values(), default=0) <= threshold:
        return None
    document, pre_image = _IMAGE_FIELDS[:2]
    event = stripped_event(raw) if sizes.get(document, 0) > threshold else rb.document_of(_without(raw, (pre_image,)))
    return event, max(sizes.values())


def _without(raw: bytes, names: Sequence[bytes]) -> list[bytes]:
    return [rb.element(name, kind, raw[value:end]) for kind, name, value, end in rb.elements(raw) if name not in names]


def key_too_large_error() -> ConfigurationError:
    """Return the error for an event that the server cannot send even without its documents."""
    return ConfigurationError(
        "the key of a changed document alone exceeds what MongoDB can send (an _id of some 2.6 MiB), "
        "so the stream cannot pass that event",
        next_step="start after it (strandline offsets alter --to TIME), then snapshot its collection again",
    )


@dataclass
class OversizeLocator:
    """Search for the event that the server cannot send.

    If the server fails at a reply of many events, the event is one of them. If it fails at a reply of one event, the
    next event is the one.

    Args:
        ahead: Maximum events that precede it in the failed reply.
    """

    ahead: int
    refusals: int = 0
    """Failed replies since the last `reset`."""
    lost_connections: int = 0
    """Lost connections since the position last moved.

    MongoDB closes the connection if an event and the token after it exceed one reply together.
    """
    _left: int = 0

    @property
    def is_active(self) -> bool:
        """Return True if the stream must be read with one event per reply."""
        return self.refusals > 0

    @property
    def repeated(self) -> int:
        """Return how often a reply of one event failed. Above 0 it is certain that the next event is too large."""
        return max(0, self.refusals - 1)

    def may_explain(self, failure: Exception) -> bool:
        """Return True if an event that is too large may have caused *failure*. Count lost connections."""
        if not isinstance(failure, mongo.PyMongoError):
            return False
        if not self.is_lost_connection(failure):
            return classify(failure, "reading") == "oversize"
        self.lost_connections += 1
        return self.lost_connections > _MAX_LOST_CONNECTIONS

    @staticmethod
    def is_lost_connection(failure: Exception) -> bool:
        """Return True if an open connection broke and the server gave no reason."""
        if not isinstance(failure, mongo.AutoReconnect) or isinstance(failure, mongo.ServerSelectionTimeoutError):
            return False
        return classify(failure, "reading") == "retriable"

    def explains(self, failure: Exception, stripped: bytes) -> bool:
        """Return True if the next event caused *failure*. MongoDB closes a connection only at a large key."""
        return not self.is_lost_connection(failure) or len(stripped) > _LARGE_KEY_BYTES

    def record_refusal(self) -> int:
        """Count a failed reply. Return how often the large event alone was requested; 0: not found yet."""
        self.refusals += 1
        self._left = self.ahead
        return self.repeated

    def record_received(self, events: int) -> bool:
        """Count received *events*. Return True if the search is over and large replies may be tried again.

        The search is over when the event that failed has arrived: its document is smaller by now.
        """
        self._left -= events
        if not self.is_active or (events and not self.repeated and self._left > 0):
            return False
        self.reset()
        return True

    def reset(self) -> None:
        """End the search."""
        self.refusals = 0


@dataclass
class Fragments:
    """Joiner of the fragments that `SPLIT_STAGE` makes of an event.

    While it is incomplete no token may be committed: a stream cannot resume between fragments.
    """

    _parts: list[bytes] = field(default_factory=list)

    @property
    def is_incomplete(self) -> bool:
        """Return True if fragments of the current event are missing."""
        return bool(self._parts)

    def add(self, raw: bytes) -> bytes | None:
        """Add one reply of the stream. Return the complete event with the last fragment's token, or None.

        Raises:
            ContractError: A fragment is missing or comes out of order.
        """
        place = _place(raw)
        if place is None and not self._parts:
            return raw
        number, of = place or (0, 0)
        if number != len(self._parts) + 1:
            self._parts.clear()
            raise ContractError(
                "the fragments of a change event do not follow each other",
                next_step="strandline capture: it reads the event again",
            )
        self._parts.append(raw)
        if number < of:
            return None
        whole = _joined(self._parts)
        self._parts.clear()
        return whole


def _place(raw: bytes) -> tuple[int, int] | None:
    """Return number and count of a fragment (``splitEvent``); None for an event that is not split."""
    span = rb.field(raw, _SPLIT)
    if span is None:
        return None
    numbers = {name: rb.int32_at(raw, value) for _, name, value, _ in rb.elements(raw, span[1])}
    return numbers[b"fragment"], numbers[b"of"]


def _joined(parts: Sequence[bytes]) -> bytes:
    """Join fragments. Each field is in one fragment, except the token: the last fragment's token is the event's."""
    fields: dict[bytes, bytes] = {}
    for part in parts:
        for kind, name, value, end in rb.elements(part):
            if name != _SPLIT:
                fields[name] = rb.element(name, kind, part[value:end])
    return rb.document_of(fields.values())
