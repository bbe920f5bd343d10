"""Events above 16 MiB, the largest message of MongoDB: passed without their heavy parts, or put together from fragments. Pure.

The server answers 10334 again and again at such an event, gives nothing of the batch it stands in, and its position does not move. Read
one event an answer, all before it come; read without the heavy parts, it comes itself, with its token: no other event is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pymongo import errors as mongo

from pipelines.errors import ConfigurationError, ContractError
from pipelines.model.bson import raw as rb
from pipelines.model.user_pipeline import Stage
from pipelines.source.errors import classify

IMAGE_FIELDS = ("fullDocument", "fullDocumentBeforeChange", "updateDescription")
_IMAGE_FIELDS = tuple(name.encode() for name in IMAGE_FIELDS)

STRIP_STAGE: Stage = {"$project": dict.fromkeys(IMAGE_FIELDS, 0)}
"""Stands last: the stages before it see whole events, so that the same ones pass as always."""

SPLIT_STAGE: Stage = {"$changeStreamSplitLargeEvent": {}}
"""MongoDB 6.0.9 and newer; it must stand last."""

_SPLIT = b"splitEvent"
_LOST_CONNECTIONS = 2
_LARGE_KEY = 1024 * 1024


@dataclass(frozen=True)
class OversizeEvent:
    """An event that goes on without its heavy parts."""

    event: bytes
    """As it lands."""
    attempts: int
    document_bytes: int | None
    """Of the larger document that was left out; None: unknown, the server could not send it."""

    @property
    def refused_by_server(self) -> bool:
        return self.document_bytes is None


def stripped_event(raw: bytes) -> bytes:
    """The event without its heavy parts, and with the field ``_leftOut`` that says so."""
    names = (rb.element(b"%d" % number, rb.STRING, rb.string_value(name)) for number, name in enumerate(_IMAGE_FIELDS))
    return rb.document_of([*_without(raw, _IMAGE_FIELDS), rb.element(rb.LEFT_OUT, rb.ARRAY, rb.document_of(names))])


def below_threshold(raw: bytes, threshold: int) -> tuple[bytes, int] | None:
    """The event without the documents above *threshold* bytes, and the size of the larger one; None where there is none.

    Without its pre-image it is a change as any other; without its document it is a light event.
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


def key_too_large() -> ConfigurationError:
    """Even the light event is more than the server can send."""
    return ConfigurationError(
        "the key of a changed document alone exceeds what MongoDB can send (an _id of some 2.6 MiB), so the stream cannot pass that event",
        next_step="start after it (strandline offsets alter --to TIME), then snapshot its collection again",
    )


@dataclass
class OversizeLocator:
    """Finds the event that the server cannot send. Refused in an answer of many it is somewhere ahead; refused in an answer of one, it
    is the next.

    Args:
        ahead: Events that may stand before it in the answer that was refused.
    """

    ahead: int
    refusals: int = 0
    lost_connections: int = 0
    """Since the stream moved last. MongoDB closes the connection where an event and the token after it exceed one answer together."""
    _left: int = 0

    @property
    def is_on(self) -> bool:
        """Read one event an answer."""
        return self.refusals > 0

    @property
    def repeated(self) -> int:
        """How often an answer of one was refused; then it is certain which event it is."""
        return max(0, self.refusals - 1)

    def suspects(self, failure: Exception) -> bool:
        """Whether an event that is too large may be what failed."""
        if not isinstance(failure, mongo.PyMongoError):
            return False
        if not self.is_lost_connection(failure):
            return classify(failure, "reading") == "oversize"
        self.lost_connections += 1
        return self.lost_connections > _LOST_CONNECTIONS

    @staticmethod
    def is_lost_connection(failure: Exception) -> bool:
        """Not one that was never made, nor one behind which the server said why."""
        if not isinstance(failure, mongo.AutoReconnect) or isinstance(failure, mongo.ServerSelectionTimeoutError):
            return False
        return classify(failure, "reading") == "retriable"

    def explains(self, failure: Exception, stripped: bytes) -> bool:
        """Whether the next event is what failed: only a large key makes MongoDB close the connection."""
        return not self.is_lost_connection(failure) or len(stripped) > _LARGE_KEY

    def refused(self) -> int:
        """Note a refusal; returns how often the same event was asked for since it is certain."""
        self.refusals += 1
        self._left = self.ahead
        return self.repeated

    def came(self, events: int) -> bool:
        """Note that *events* were sent. Whether the refused one must be among them, shorter by now, so that larger answers may be tried."""
        self._left -= events
        if not self.is_on or (events and not self.repeated and self._left > 0):
            return False
        self.ended()
        return True

    def ended(self) -> None:
        self.refusals = 0


@dataclass
class Fragments:
    """Puts together what `SPLIT_STAGE` took apart. While it waits, no token may be handed on: one between fragments is no place to
    start from."""

    _parts: list[bytes] = field(default_factory=list)

    @property
    def waiting(self) -> bool:
        return bool(self._parts)

    def add(self, raw: bytes) -> bytes | None:
        """One answer of the stream. Returns the whole event (with the last fragment's token), or None while fragments are missing.

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
    """``splitEvent``: this fragment's number, and how many there are."""
    span = rb.field(raw, _SPLIT)
    if span is None:
        return None
    numbers = {name: rb.int32_at(raw, value) for _, name, value, _ in rb.elements(raw, span[1])}
    return numbers[b"fragment"], numbers[b"of"]


def _joined(parts: Sequence[bytes]) -> bytes:
    """A field stands in one fragment only, except the token, which each has: the last one's is the event's."""
    fields: dict[bytes, bytes] = {}
    for part in parts:
        for kind, name, value, end in rb.elements(part):
            if name != _SPLIT:
                fields[name] = rb.element(name, kind, part[value:end])
    return rb.document_of(fields.values())
