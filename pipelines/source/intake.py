"""What an answer of the change stream becomes before it joins a batch: whole, by the field rules, within the limits. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pipelines.errors import ContractError
from pipelines.model import raw_bson as rb
from pipelines.model.merge_key import merge_key
from pipelines.model.poison import why_not_json
from pipelines.source.oversize import Fragments, SetAside, below_threshold

_SHOWN: Final = (b"documentKey", b"fullDocument", b"fullDocumentBeforeChange", b"updateDescription")
_LONGEST_NAME = 300


class Intake:
    """Of one batch.

    Args:
        rewrite: Applies the field rules to an event.
        split: Answers may be fragments.
        skip_threshold: Bytes of a document that are left out; 0: none.
        strict: Stop at a document that JSON cannot show.
    """

    def __init__(self, rewrite: Callable[[bytes], bytes], *, split: bool, skip_threshold: int, strict: bool) -> None:
        self._rewrite, self._split, self._threshold, self._strict = rewrite, split, skip_threshold, strict
        self._fragments = Fragments()
        self.set_aside: list[SetAside] = []

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
        if self._threshold and len(event) > self._threshold and (less := below_threshold(event, self._threshold)) is not None:
            event, size = less
            self.set_aside.append(SetAside(event, 1, size))
        if self._strict:
            _refuse_poison(event)
        return event


def name_of(event: bytes) -> str:
    """Collection and `_id` of an event's document, for people: cut where the `_id` is long."""
    namespace = rb.field(event, b"ns")
    parts = [rb.text(event, value, end) for _, _, value, end in rb.elements(event, namespace[1])] if namespace else ["?"]
    return f"the document {key_of(event) or '?'} of {'.'.join(parts)}"


def key_of(event: bytes) -> str | None:
    """The MERGE key of an event's document, cut where it is long."""
    span = rb.field(event, b"documentKey")
    identifier = rb.field(event, b"_id", span[1]) if span is not None else None
    return None if identifier is None else merge_key(event, *identifier)[:_LONGEST_NAME]


def _refuse_poison(event: bytes) -> None:
    for kind, name, value, end in rb.elements(event):
        if kind == rb.DOCUMENT and name in _SHOWN and (why := why_not_json(event[value:end])) is not None:
            raise ContractError(
                f"{name_of(event)} cannot be shown as JSON ({name.decode()}: {why}); nothing from it on has landed",
                next_step="correct the document, or set capture.errors_tolerance: all, and such documents land as bytes",
            )
