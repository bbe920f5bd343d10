"""From a reply of the change stream to a complete event: fragments joined, field rules and limits applied. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.errors import ContractError
from strandline.model.bson import raw as rb
from strandline.model.bson.merge_key import key_name, merge_key
from strandline.model.bson.poison import json_problem
from strandline.source.oversize_events import Fragments, OversizeEvent, without_large_documents

_DOCUMENTS: Final = (b"documentKey", b"fullDocument", b"fullDocumentBeforeChange", b"updateDescription")


class EventAssembler:
    """Assembler of the events of one batch.

    Args:
        rewrite: Function that applies the field rules to an event.
        split: A reply may be a fragment of an event.
        skip_threshold: Leave out documents above this size, in bytes; 0: no limit.
        strict: Fail at a document that JSON cannot represent.
        show_keys: Errors name a document by its key. False: by a hash of its key.
    """

    def __init__(
        self,
        rewrite: Callable[[bytes], bytes],
        *,
        split: bool,
        skip_threshold: int,
        strict: bool,
        show_keys: bool = False,
    ) -> None:
        self._rewrite, self._split, self._threshold, self._strict = rewrite, split, skip_threshold, strict
        self._show_keys = show_keys
        self._fragments = Fragments()
        self.oversize_events: list[OversizeEvent] = []

    def add(self, reply: bytes) -> bytes | None:
        """Return the event as bronze stores it; None while fragments are missing.

        Raises:
            ContractError: Fragments are out of order; or *strict* is set and JSON cannot represent a document.
            MalformedBson, ConfigurationError: See `FieldRewriter.rewrite_event`.
        """
        complete = self._fragments.add(reply) if self._split else reply
        if complete is None:
            return None
        event = self._rewrite(complete)
        if self._threshold and len(event) > self._threshold:
            reduced = without_large_documents(event, self._threshold)
            if reduced is not None:
                event, size = reduced
                self.oversize_events.append(OversizeEvent(event, 1, size))
        if self._strict:
            _refuse_poison(event, show_keys=self._show_keys)
        return event


def document_label(event: bytes, *, show_keys: bool) -> str:
    """Return collection and key of an event's document for messages. `key_name` writes the key."""
    namespace = rb.field(event, b"ns")
    parts = (
        [rb.text(event, value, end) for _, _, value, end in rb.elements(event, namespace[1])] if namespace else ["?"]
    )
    span = rb.field(event, b"documentKey")
    identifier = rb.field(event, b"_id", span[1]) if span is not None else None
    key = "no key" if identifier is None else key_name(merge_key(event, *identifier), show=show_keys)
    return f"the document with {key} of {'.'.join(parts)}"


def _refuse_poison(event: bytes, *, show_keys: bool) -> None:
    for kind, name, value, end in rb.elements(event):
        if kind == rb.DOCUMENT and name in _DOCUMENTS and (why := json_problem(event[value:end])) is not None:
            raise ContractError(
                f"{document_label(event, show_keys=show_keys)} cannot be shown as JSON ({name.decode()}: {why}); "
                "no event from this one on has landed",
                next_step=(
                    "correct the document, or set capture.errors_tolerance: all, and such documents land as bytes"
                ),
            )
