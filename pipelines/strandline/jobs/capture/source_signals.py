"""Signals that users insert into a collection of the source. Capture reads them from its own change stream."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidBSON

from strandline.control.signal_inbox import SignalInbox, from_document
from strandline.model.bson import raw as rb
from strandline.model.namespaces import Namespace, name_in_events, namespace_of
from strandline.model.signal import Signal
from strandline.source.change_batch import ChangeBatch
from strandline.source.stages import Selection

_OPTIONS: CodecOptions[dict[str, object]] = CodecOptions(
    unicode_decode_error_handler="replace", datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


@dataclass(frozen=True)
class SourceSignals:
    """Moves signals from the change stream to the inbox."""

    selection: Selection
    inbox: SignalInbox

    def before_commit(self, change: ChangeBatch) -> ChangeBatch:
        """Store the signals in *change*, and return *change* without them. Keep them if their collection is captured.

        I/O: writes ``control.signals``. Call it before *change* is committed: after a crash between the two the signals
        arrive again, and the inbox knows them.
        """
        if self.selection.signals is None:
            return change
        signals = [event for event in change.events if is_signal(event, self.selection.signals)]
        if not signals:
            return change
        self.inbox.put([signal_of(event) for event in signals])
        if self.selection.admits(*self.selection.signals):
            return change
        return replace(
            change, events=tuple(event for event in change.events if not is_signal(event, self.selection.signals))
        )


def is_signal(event: bytes, collection: Namespace) -> bool:
    """Return True if *event* is an insert into *collection*. A byte search comes first: few events need a parse."""
    if name_in_events(collection) not in event:
        return False
    kind = rb.field(event, b"operationType")
    return kind is not None and rb.text(event, kind[1], kind[2]) == "insert" and namespace_of(event) == collection


def signal_of(event: bytes) -> Signal:
    """Return the signal of an insert event: ``{type: …, data: {…} or JSON}``.

    The signal's id is the document's `_id`, as JSON if it is no string. A document that cannot be decoded is a signal
    without a known type, which is refused; its id is a hash.
    """
    span = rb.field(event, b"fullDocument")
    raw = b"" if span is None else event[span[1] : span[2]]
    try:
        document = bson.decode(raw, _OPTIONS) if raw else {}
    except InvalidBSON:
        document = {"_id": hashlib.sha256(raw).hexdigest(), "type": "(no valid BSON)"}
    key = document.get("_id")
    signal_id = key if isinstance(key, str) else json_util.dumps(key)
    return from_document(document, signal_id, "source", "source")
