"""How updates came into bronze: whoever folds them must know of every way that there ever was, whatever is configured today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

UpdateKind = Literal["patch", "lookup", "post_image"]
"""Without a document; with one that was looked up later; with the one that the update left."""

UPDATES_PROPERTY: Final = "strandline.updates"
"""Of the bronze table: the kinds, with commas between them."""


def updates_in(properties: Mapping[str, str]) -> frozenset[str]:
    """The kinds that a bronze table's properties tell of. One of an older release does not tell: a looked-up document is trusted least."""
    return frozenset(properties.get(UPDATES_PROPERTY, "lookup").split(","))
