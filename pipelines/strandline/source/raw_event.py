"""Change events as bytes, as the driver returns them."""

from __future__ import annotations

from typing import Any, Final

from bson.raw_bson import RawBSONDocument

from strandline.model.bson.raw import int32_at

_TOKEN_FIRST: Final = b"\x03_id\0"
_DATA_FIRST: Final = b"\x02_data\0"
_TOKEN_AT, _DATA_AT = 9, 13


class RawEvent(RawBSONDocument):
    """A document that stays bytes. Its resume token can be read without decoding the rest.

    The driver reads the token of every event. A plain `RawBSONDocument` decodes its whole top level for that,
    which took half of the time of reading a stream.
    """

    __slots__ = ()

    def __getitem__(self, item: str) -> Any:
        if item == "_id":
            beginning = bytes(self.raw[: _DATA_AT + len(_DATA_FIRST)])
            if beginning.startswith(_TOKEN_FIRST, 4) and beginning.endswith(_DATA_FIRST):
                return RawBSONDocument(bytes(self.raw[_TOKEN_AT : _TOKEN_AT + int32_at(beginning, _TOKEN_AT)]))
        return super().__getitem__(item)


def token_of(event: bytes) -> Any:
    """Return the resume token of a change event."""
    return RawEvent(event)["_id"]
