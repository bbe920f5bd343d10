"""What the driver hands over of a change stream: the event's bytes."""

from __future__ import annotations

from typing import Any, Final

from bson.raw_bson import RawBSONDocument

from pipelines.model.bson.raw import int32_at

_TOKEN_FIRST: Final = b"\x03_id\0"
_DATA_FIRST: Final = b"\x02_data\0"
_TOKEN_AT, _DATA_AT = 9, 13


class RawEvent(RawBSONDocument):
    """A document that stays bytes; its resume token is read without the rest of it.

    A change stream asks every event for its token, and a `RawBSONDocument` decodes its whole top level for one field: that took half of the
    time in which a stream is read.
    """

    __slots__ = ()

    def __getitem__(self, item: str) -> Any:
        if item == "_id":
            beginning = bytes(self.raw[: _DATA_AT + len(_DATA_FIRST)])
            if beginning.startswith(_TOKEN_FIRST, 4) and beginning.endswith(_DATA_FIRST):
                return RawBSONDocument(bytes(self.raw[_TOKEN_AT : _TOKEN_AT + int32_at(beginning, _TOKEN_AT)]))
        return super().__getitem__(item)


def token_of(event: bytes) -> Any:
    """The resume token of a change event, as the driver has it."""
    return RawEvent(event)["_id"]
