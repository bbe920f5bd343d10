"""What an answer of the change stream becomes before it joins a batch: whole, by the field rules, within the limits. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pipelines.errors import ContractError
from pipelines.model.bson import raw as rb
from pipelines.model.bson.merge_key import key_name, merge_key
from pipelines.model.bson.poison import why_not_json
from pipelines.source.oversize_events import Fragments, OversizeEvent, below_threshold

_SHOWN: Final = (b"documentKey", b"fullDocument", b"fullDocumentBeforeChange", b"updateDescription")


class EventAssembler:
    """Of one batch.

    Args:
        rewrite: Applies the field rules to an event.
        split: Answers may be fragments.
        skip_threshold: Bytes of a document that are left out; 0: none.
        strict: Stop at a document that JSON cannot show.
        show_keys: The error names that document by its key, not by the key's hash.
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

    @property
    def waiting(self) -> bool:
        """In the middle of an event: no token may be handed on."""
        return self._fragments.waiting

    def take(self, answer: bytes) -> bytes | None:
        """The event as it lands; None while fragments of it are missing.

        Raises:
            ContractError: Strict, and JSON cannot show one of its documents; or its fragments do not follow each other.
            MalformedBson, ConfigurationError: As `FieldRewriter.event`.
        """
        whole = self._fragments.add(answer) if self._split else answer
        if whole is None:
            return None
        event = self._rewrite(whole)
        if (
            self._threshold
            and len(event) > self._threshold
            and (less := below_threshold(event, self._threshold)) is not None
        ):
            event, size = less
            self.oversize_events.append(OversizeEvent(event, 1, size))
        if self._strict:
            _refuse_poison(event, show_keys=self._show_keys)
        return event


def name_of(event: bytes, *, show_keys: bool) -> str:
    """Collection and key of an event's document, for people; the key as `key_name` names it."""
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
        if kind == rb.DOCUMENT and name in _SHOWN and (why := why_not_json(event[value:end])) is not None:
            raise ContractError(
                f"{name_of(event, show_keys=show_keys)} cannot be shown as JSON ({name.decode()}: {why}); nothing from it on has landed",
                next_step="correct the document, or set capture.errors_tolerance: all, and such documents land as bytes",
            )
