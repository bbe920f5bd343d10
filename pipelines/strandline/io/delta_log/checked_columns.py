"""Tables of which a writer must check rows, or compute values. delta-rs does neither as Spark does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_COMPUTED: Final = (
    *("delta.invariants", "delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT"),
    "__CHAR_VARCHAR_TYPE_STRING",
)
_NOT_NULL: Final = '"nullable":false'
"""Keys of a column's metadata, and a part of its definition, that tell a writer to check or to compute values."""


def computes(schema: str) -> bool:
    """Return True if a writer must check or compute values of a column."""
    return _NOT_NULL in schema.replace(" ", "") or any(f'"{key}"' in schema for key in _COMPUTED)


def is_checked(properties: Mapping[str, str]) -> bool:
    """Return True if a writer must check rows, or may not change them. Delta ignores upper and lower case."""
    folded = {name.casefold(): value for name, value in properties.items()}
    is_append_only = folded.get("delta.appendonly", "").casefold() == "true"
    return is_append_only or any(name.startswith("delta.constraints.") for name in folded)
