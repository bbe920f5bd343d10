"""Documents, pre-images and patches in bronze rows. Pure."""

from __future__ import annotations

from strandline.model.bson import raw as rb


def document_in(op: str | None, envelope: bytes | None) -> bytes | None:
    """Return the whole document in an envelope: a READ's envelope, or an event's ``fullDocument``. None: there is none.

    ``_id`` is moved to the front, where the server stores it.
    """
    if op is None or envelope is None:
        return None
    document = envelope if op == "r" else _document(envelope, b"fullDocument")
    return None if document is None else with_id_first(document)


def with_id_first(document: bytes) -> bytes:
    """Return the document with ``_id`` as its first field, where the server stores it.

    In the event of a replacement by a pipeline, ``_id`` is at the place where the pipeline put it.
    """
    if document[5:9] == b"_id\0":
        return document
    span = rb.field(document, b"_id")
    if span is None:
        return document
    _, value, end = span
    start = value - len(b"?_id\0")
    return b"".join((document[:4], document[start:end], document[4:start], document[end:]))


def before_in(event: bytes) -> bytes | None:
    """Return an event's pre-image. None: the event has none."""
    return _document(event, b"fullDocumentBeforeChange")


def patch_in(event: bytes) -> bytes | None:
    """Return an event's ``updateDescription``. None: the event has none, so the changed fields are unknown."""
    return _document(event, b"updateDescription")


def _document(event: bytes, name: bytes) -> bytes | None:
    span = rb.field(event, name)
    return event[span[1] : span[2]] if span is not None and span[0] == rb.DOCUMENT else None
