"""Kinds of update events in bronze. Folding needs all kinds that were ever captured, not only the configured one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

UpdateKind = Literal["patch", "lookup", "post_image"]
"""``patch``: without a document. ``lookup``: with a document looked up later. ``post_image``: with the exact document.
"""

UPDATES_PROPERTY: Final = "strandline.updates"
"""Property of the bronze table: its update kinds, separated by commas."""


def updates_in(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the update kinds of a bronze table. Default without the property: ``lookup``, the least exact kind."""
    return frozenset(properties.get(UPDATES_PROPERTY, "lookup").split(","))
