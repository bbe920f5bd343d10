"""The document that a bronze row carries. Pure."""

from __future__ import annotations

from pipelines.model import raw_bson as rb


def document_in(op: str | None, envelope: bytes | None) -> bytes | None:
    """The whole document that an envelope carries: a READ's envelope is the document, an event's is its ``fullDocument``."""
    if op is None or envelope is None:
        return None
    if op == "r":
        return envelope
    return _document(envelope, b"fullDocument")


def is_exact(op: str | None, envelope: bytes | None) -> bool:
    """Whether that document is the one at the row's position; an update's was looked up later, and may hold later changes already."""
    if op != "u" or envelope is None:
        return op is not None
    span = rb.field(envelope, b"operationType")
    return span is not None and rb.text(envelope, span[1], span[2]) == "replace"


def before_in(event: bytes) -> bytes | None:
    """The pre-image that an event carries."""
    return _document(event, b"fullDocumentBeforeChange")


def patch_in(event: bytes) -> bytes:
    """The event's ``updateDescription``; an event without one changed nothing."""
    return _document(event, b"updateDescription") or b"\x05\0\0\0\0"


def _document(event: bytes, name: bytes) -> bytes | None:
    span = rb.field(event, name)
    return event[span[1] : span[2]] if span is not None and span[0] == rb.DOCUMENT else None
