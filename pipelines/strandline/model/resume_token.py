"""Resume token as bronze stores it: Extended JSON of the server's document. Only the version of its format is read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from strandline.errors import ResumePointLost
from strandline.model.json_input import parse_extended_json

RESET_OR_HEAL = "strandline stop, strandline offsets reset, strandline start; or set capture.on_history_lost: heal"
"""Next step in errors about a lost position."""


@dataclass(frozen=True)
class ResumeToken:
    """Well-formed resume token. The server may have dropped its position from the oplog."""

    document: Mapping[str, Any]
    data: str
    """``_data``: string that sorts in stream order."""

    @property
    def format(self) -> str:
        """Version of the token's format, in hex: ``2B02``, from 7.0 on ``2B04``. It stands behind the cluster time.

        One event has another ``_data`` in each format. Source: ``resume_token.cpp`` of MongoDB; measured up to 6.0.27.
        """
        return self.data[18:22]

    @staticmethod
    def parse(text: str) -> ResumeToken:
        """Parse *text*. Raise ResumePointLost if it is not a BSON document with a string ``_data``."""
        try:
            document = parse_extended_json(text)
        except ValueError:
            document = None
        if not isinstance(document, dict) or not isinstance(document.get("_data"), str):
            raise ResumePointLost(
                "the committed position cannot be read: it is no resume token", next_step=RESET_OR_HEAL
            )
        return ResumeToken(document, document["_data"])


def is_readable(text: str) -> bool:
    """Return True if `ResumeToken.parse` accepts *text*."""
    with suppress(ResumePointLost):
        return bool(ResumeToken.parse(text).document)
    return False
