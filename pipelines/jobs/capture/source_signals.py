"""Signals that somebody inserts into a collection of the source: read from the stream that is open anyway."""

from __future__ import annotations

from dataclasses import dataclass, replace

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion

from pipelines.control.signal_inbox import SignalInbox, from_document
from pipelines.model.bson import raw as rb
from pipelines.model.namespaces import Namespace, namespace_of
from pipelines.model.signal import Signal
from pipelines.source.change_batch import ChangeBatch
from pipelines.source.stages import Selection

_OPTIONS: CodecOptions[dict[str, object]] = CodecOptions(
    unicode_decode_error_handler="replace", datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


@dataclass(frozen=True)
class SourceSignals:
    """Takes them out of what arrives."""

    selection: Selection
    inbox: SignalInbox

    def without(self, change: ChangeBatch) -> ChangeBatch:
        """I/O: *change* without the signals in it, which are in the table of signals then; where the collection is captured, they stay.

        Before the batch that passes them lands: after a crash between the two they arrive again, and are there already.
        """
        if self.selection.signals is None:
            return change
        found = [event for event in change.events if is_signal(event, self.selection.signals)]
        if not found:
            return change
        self.inbox.put([signal_of(event) for event in found])
        if self.selection.admits(*self.selection.signals):
            return change
        return replace(
            change, events=tuple(event for event in change.events if not is_signal(event, self.selection.signals))
        )


def is_signal(event: bytes, collection: Namespace) -> bool:
    """Whether *event* is an insert into *collection*. The name is looked for first: most events are parsed no further."""
    name = collection.collection.encode()
    if b"\x02coll\0" + (len(name) + 1).to_bytes(4, "little") + name + b"\0" not in event:
        return False
    kind = rb.field(event, b"operationType")
    return kind is not None and rb.text(event, kind[1], kind[2]) == "insert" and namespace_of(event) == collection


def signal_of(event: bytes) -> Signal:
    """The signal of an insert: ``{type: …, data: {…} or JSON}``; its id is the document's."""
    span = rb.field(event, b"fullDocument")
    document = bson.decode(event[span[1] : span[2]], _OPTIONS) if span is not None else {}
    identifier = document.get("_id")
    named = identifier if isinstance(identifier, str) else json_util.dumps(identifier)
    return from_document(document, named, "source", "source")
