"""Parser of MongoDB Extended JSON from settings, signals and options."""

from __future__ import annotations

from typing import Any

import bson
from bson import json_util

from strandline.errors import ConfigurationError

MAX_DEPTH = 100
"""Maximum levels of nesting that MongoDB stores."""


def parse_extended_json(text: str) -> Any:
    """Parse one value of Extended JSON. Pure.

    Raises:
        ValueError: *text* is not Extended JSON, BSON cannot store it, or it is nested too deeply. The message holds no
            value.
    """
    try:
        value = json_util.loads(text, json_options=json_util.CANONICAL_JSON_OPTIONS)
        bson.encode({"value": value})
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except Exception:  # noqa: BLE001  # why: the parsers of decimal, date, binary, ObjectId, … raise various errors
        raise ValueError("is not valid JSON, or holds what BSON cannot") from None
    if _depth(value) > MAX_DEPTH:
        raise ValueError("is nested too deeply")
    return value


def id_document(text: str) -> bytes:
    """Return the BSON document ``{_id: value}`` of an `_id` in Extended JSON.

    Raises:
        ConfigurationError: *text* is no Extended JSON. The message holds no value.
    """
    try:
        return bson.encode({"_id": parse_extended_json(text)})
    except ValueError as error:
        raise ConfigurationError(
            f"an _id of --key {error}",
            next_step="""write it as Extended JSON, such as 17, '"abc"' or '{"$oid": "…"}'""",
        ) from None


def _depth(value: Any) -> int:
    """Return the levels of nesting. No recursion: a deep value would exceed the recursion limit."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for part in level
            for inner in (part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
        ]
    return depth
