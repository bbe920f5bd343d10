"""Old events of erased documents, which a moved offset or a late capture brings again. They do not land."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from strandline.bronze.erasure import time_token, token_in
from strandline.bronze.event_row import event_row
from strandline.control.erasures import ErasedDocuments
from strandline.model.namespaces import Namespace
from strandline.source.change_batch import ChangeBatch

_log = logging.getLogger("strandline.capture")


@dataclass(frozen=True)
class ErasedEvents:
    """Leaves out the events of erased documents up to their erasure. Later events are the source's own."""

    documents: ErasedDocuments

    def before_commit(self, change: ChangeBatch) -> ChangeBatch:
        """Return *change* without such events. I/O: asks for the version of ``control.erasures`` if there are events.

        A resume token contains the `_id` of its event. If that event is left out, the batch ends with a token of the
        same time that names no event.
        """
        if not change.events:
            return change
        self.documents.refresh()
        first = change.first_event
        if first is not None and f"{first}:" > self.documents.newest:
            return change
        left_out = {event: position for event in change.events if (position := self._position_of(event)) is not None}
        if not left_out:
            return change
        _log.info("%d old events of erased documents were left out", len(left_out))
        names_document = change.token_data in {token_in(position) for position in left_out.values()}
        return replace(
            change,
            events=tuple(event for event in change.events if event not in left_out),
            oversize_events=tuple(one for one in change.oversize_events if self._position_of(one.event) is None),
            resume_token=time_token(change.resume_token) if names_document else change.resume_token,
        )

    def _position_of(self, event: bytes) -> str | None:
        """Return the position of an event that is to be left out. None: it lands."""
        try:
            position, _, _, db, collection, _, key, *_ = event_row(event)
        except ValueError:  # a damaged event lands as a dead letter, and tells no key
            return None
        is_erased = key is not None and self.documents.has(Namespace(db or "", collection or ""), key, position)
        return position if is_erased else None
