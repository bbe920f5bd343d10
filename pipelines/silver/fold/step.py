"""One patch folded onto one document, or the answer that it must wait. Silver and its history ask alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.model.bson import raw as rb
from pipelines.model.gap import Gap
from pipelines.silver.fold.document import CannotFold, fold_with_certainty

LOOKUP: Final = "lookup"
"""Looked up after the change: it may hold later changes already."""
CAPPED: Final = "capped"
"""Read from a capped collection, of which no server reads the past: as above."""
PATH: Final = "path"
"""Folded, and a path of a patch has two readings (before MongoDB 6.1): the likely one was taken. No later change is in it."""
OVERSIZE: Final = "oversize"
"""A later change was left out, with its document."""
WAITING: Final = "waiting"
"""A later patch waits."""
_BETWEEN_REASONS: Final = ", "


def reasons_in(text: str) -> list[str]:
    """The reasons in a row's ``_inexact_because``."""
    return text.split(_BETWEEN_REASONS)


def reasons_text(reasons: Iterable[str]) -> str | None:
    """``_inexact_because`` of a row; None where there are no reasons."""
    return _BETWEEN_REASONS.join(reasons) or None


@dataclass(frozen=True)
class Base:
    """A document: its position, its bytes, and why it may not be the one at its position (None: it is)."""

    position: str
    document: bytes
    inexact: str | None = None

    @property
    def is_foldable(self) -> bool:
        """No change above its position is in it already."""
        return self.inexact in (None, PATH)


def fold_next(base: Base, position: str, patch: bytes | None, gaps: Sequence[Gap] = ()) -> Base | None:
    """The document after the next change of a key.

    Args:
        base: The document before it.
        position: Of the change.
        patch: Its ``updateDescription``; None: bronze does not hold it.
        gaps: Of bronze, for this collection.

    Returns:
        None where the document after the change is not known: the patch is not held or does not fit, the base may hold it already, or a
        gap lies between the two.
    """
    if patch is None or not base.is_foldable or any(gap.parts(base.position, position) for gap in gaps):
        return None
    try:
        folded = fold_with_certainty(base.document, patch)
    except (CannotFold, rb.MalformedBson):
        return None
    return Base(position, folded.document, base.inexact if folded.paths_are_certain else PATH)
