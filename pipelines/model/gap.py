"""A gap: a stretch of the source's history that bronze lacks, or holds in part. Patches are not folded across one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

GAPS_PROPERTY: Final = "strandline.gaps"
"""Of the bronze table: its gaps as JSON, beside the ``gap`` rows, so that silver need not look for them."""

_NO_END: Final = "~"
"""Sorts above every position."""


@dataclass(frozen=True)
class Gap:
    """Events that were lost have positions above *after* and below *before*."""

    after: str
    before: str
    collection: str | None = None
    """The only one that lost any (``database.collection``); None: any."""
    again_from: int | None = None
    """The position was moved back, and the batches above this one bring what was lost, in order. None: nobody does."""
    hides: bool | None = None
    """Events came meanwhile, but a user's stages may have left out others, or parts of them."""

    @staticmethod
    def open_from(after: str) -> Gap:
        """A gap of all collections that goes on until `closed`."""
        return Gap(after, _NO_END, hides=True)

    @property
    def is_open(self) -> bool:
        """It still goes on."""
        return self.before == _NO_END

    def closed(self, before: str) -> Gap:
        """The same gap, with its end."""
        return replace(self, before=before)

    def concerns(self, collection: str) -> bool:
        return self.collection in (None, collection)

    def parts(self, base: str, patch: str) -> bool:
        """Whether something between a document and a patch upon it may be missing (all three are positions)."""
        is_behind = _own(patch) > self.after if self.again_from is None else _own(patch) >= self.before
        return _own(base) < self.before and is_behind

    def blurs(self, position: str) -> bool:
        """Return True if an event at *position* may have come in part."""
        return bool(self.hides) and self.after < _own(position) < self.before


def _own(position: str) -> str:
    """Of a change that came with a rename: its own position, without that of the rename in front."""
    return position.rpartition("#")[2]


def gaps_of(properties: Mapping[str, str]) -> tuple[Gap, ...]:
    """The gaps, of whatever collections, that a bronze table's properties tell of."""
    return tuple(Gap(**stored) for stored in json.loads(properties.get(GAPS_PROPERTY, "[]")))


def gaps_json(gaps: Iterable[Gap]) -> str:
    return json.dumps([{name: value for name, value in asdict(gap).items() if value is not None} for gap in gaps])
