"""Gaps: ranges of positions whose events bronze lacks or holds in part. No patch is folded across a gap."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Final

from strandline.model.position import cluster_seconds

GAPS_PROPERTY: Final = "strandline.gaps"
"""Property of the bronze table: its gaps as JSON. It saves silver a search for the ``gap`` rows."""

_NO_END: Final = "~"
"""Sorts above every position."""


@dataclass(frozen=True)
class Gap:
    """Range of lost events: their positions are above *after* and below *before*."""

    after: str
    before: str
    collection: str | None = None
    """Collection with lost events (``database.collection``). None: all collections may have lost events."""
    again_from: int | None = None
    """Batch number: later batches read the lost events again, in order, after an offset reset. None: not read again."""
    hides: bool | None = None
    """True: events were captured in the gap, but a user's pipeline stages may have removed events or fields."""

    @staticmethod
    def open_from(after: str) -> Gap:
        """Return a gap of all collections without an end; `closed` sets the end."""
        return Gap(after, _NO_END, hides=True)

    @property
    def is_open(self) -> bool:
        """True if the gap has no end yet."""
        return self.before == _NO_END

    @property
    def is_start(self) -> bool:
        """True if nothing is lost but what a collection held before its start (``capture.starts``)."""
        return not self.after and self.collection is not None

    def closed(self, before: str) -> Gap:
        """Return the gap with *before* as its end."""
        return replace(self, before=before)

    def summary(self) -> str:
        """Return one line for people."""
        which = self.collection or "any collection"
        begin = f"from {_time(self.after)}" if self.after else "from the beginning"
        end = "on" if self.is_open else f"to {_time(self.before)}"
        return f"changes of {which} {'may be hidden' if self.hides else 'are missing'} {begin} {end}"

    def affects(self, collection: str) -> bool:
        return self.collection in (None, collection)

    def separates(self, base: str, patch: str) -> bool:
        """Return True if an event between the document at *base* and the patch at *patch* may be missing.

        Both arguments are positions.
        """
        is_behind = _own(patch) > self.after if self.again_from is None else _own(patch) >= self.before
        return _own(base) < self.before and is_behind

    def may_have_altered(self, position: str) -> bool:
        """Return True if an event at *position* may be incomplete."""
        return bool(self.hides) and self.after < _own(position) < self.before


def _time(position: str) -> str:
    """Return the cluster time of a position as ISO 8601, UTC."""
    return datetime.fromtimestamp(cluster_seconds(_own(position)), UTC).isoformat()


def _own(position: str) -> str:
    """Return the change's own position, without the position of a rename and the ``#`` in front of it."""
    return position.rpartition("#")[2]


def gaps_of(properties: Mapping[str, str]) -> tuple[Gap, ...]:
    """Return the gaps of all collections, from the properties of a bronze table."""
    return tuple(Gap(**fields) for fields in json.loads(properties.get(GAPS_PROPERTY, "[]")))


def gaps_json(gaps: Iterable[Gap]) -> str:
    return json.dumps([{name: value for name, value in asdict(gap).items() if value is not None} for gap in gaps])
