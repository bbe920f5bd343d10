"""Fold one patch onto one document, or decide that the patch must wait. Used by silver and by its history. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.model.bson import raw as rb
from strandline.model.gap import Gap
from strandline.silver.fold.document import CannotFold, fold_with_certainty

LOOKUP: Final = "lookup"
"""The document was looked up after the change. It may already contain later changes."""
CAPPED: Final = "capped"
"""The document was read without snapshot reads: from a capped collection, or from a server before MongoDB 5.0. It may
already contain later changes."""
PATH: Final = "path"
"""The document was folded, and a path of the patch was ambiguous (before MongoDB 6.1). The likely reading was used. The
document contains no later change."""
OVERSIZE: Final = "oversize"
"""A later change is missing because its event was oversize."""
WAITING: Final = "waiting"
"""A later patch is pending."""
_BETWEEN_REASONS: Final = ", "


def reasons_in(text: str | None) -> list[str]:
    """Return the reasons in a row's ``_inexact_because``."""
    return text.split(_BETWEEN_REASONS) if text else []


def reasons_text(reasons: Iterable[str]) -> str | None:
    """Return the value of ``_inexact_because`` for these reasons. None: no reasons."""
    return _BETWEEN_REASONS.join(reasons) or None


@dataclass(frozen=True)
class Base:
    """A document onto which a patch may be folded."""

    position: str
    document: bytes
    """Raw BSON."""
    inexact: str | None = None
    """Reason why the document may not be the one at *position*. None: it is."""

    @property
    def is_foldable(self) -> bool:
        """Return True if the document certainly contains no change above its position."""
        return self.inexact in (None, PATH)


def fold_next(base: Base, position: str, patch: bytes | None, gaps: Sequence[Gap] = ()) -> Base | None:
    """Return the document after the next change of a key.

    Args:
        base: Document before the change.
        position: Position of the change.
        patch: The change's ``updateDescription``. None: bronze does not have it.
        gaps: Gaps of bronze for this collection.

    Returns:
        None if the document after the change is unknown: bronze does not have the patch, the patch does not fit, the
        base may already contain it, or a gap lies between the two positions.
    """
    if patch is None or not base.is_foldable or any(gap.separates(base.position, position) for gap in gaps):
        return None
    try:
        folded = fold_with_certainty(base.document, patch)
    except (CannotFold, rb.MalformedBson):
        return None
    return Base(position, folded.document, base.inexact if folded.paths_are_certain else PATH)
