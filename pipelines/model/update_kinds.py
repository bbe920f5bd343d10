"""How updates came into bronze: whoever folds them must know of every way that there ever was, whatever is configured
today.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

UpdateKind = Literal["patch", "lookup", "post_image"]
"""``patch``: without a document. ``lookup``: with a document looked up later. ``post_image``: with the exact document.
"""

UPDATES_PROPERTY: Final = "strandline.updates"
"""Property of the bronze table: its update kinds, separated by commas."""


def updates_in(properties: Mapping[str, str]) -> frozenset[str]:
    """The kinds that a bronze table's properties tell of.

    One of an older release does not tell: a looked-up document is trusted least.
    """
    return frozenset(properties.get(UPDATES_PROPERTY, "lookup").split(","))
