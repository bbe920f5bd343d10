"""Which keys a batch of changes holds: the predicate by which files and rows that it cannot meet are skipped. Pure.

Delta's MERGE looks for files by what its condition says of the table alone. Without such a word it reads every key of the table, and every
column of every file that holds one of the batch's, whatever the size of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pipelines.model.tables import literal, literals

LISTED: Final = 1_000
"""The keys of so many changes are named one by one; of more the smallest and the largest are."""
_RANGES: Final = 16
"""Files are skipped for a list as for one range, from its smallest to its largest; so it is cut into so many, of neighbours."""
_LONGEST_LISTED: Final = 200
"""Characters: what is listed stands in the commit's ``predicate``, too, and an `_id` may have megabytes."""


@dataclass(frozen=True)
class Keys:
    """The keys of a batch: these (*listed*, sorted), or all between two (*bounds*, inclusive); with neither, any."""

    listed: tuple[str, ...] = ()
    bounds: tuple[str, str] | None = None
    are_streamed: bool = False
    """Of more changes than are listed, none of which is a READ."""

    def among(self, key: str) -> str:
        """SQL: whether a row of that *key* may be one that the batch changes."""
        if self.listed:
            size = -(-len(self.listed) // _RANGES)
            neighbours = (self.listed[start : start + size] for start in range(0, len(self.listed), size))
            ranges = " OR ".join(_between(key, some[0], some[-1]) for some in neighbours)
            return f"{key} IN ({literals(self.listed)}) AND ({ranges})"
        return "true" if self.bounds is None else _between(key, *self.bounds)


@dataclass
class KeyTally:
    """The keys of some bronze rows, counted; of several parts of a batch, merged."""

    count: int = 0
    read: int = 0
    """How many of the rows are READs."""
    unknown: bool = False
    """A row has no key."""
    low: str | None = None
    high: str | None = None
    listed: list[str] | None = field(default_factory=list)
    """None: there are too many, or one is too long."""

    def merge(self, other: KeyTally) -> None:
        self.count, self.read, self.unknown = (
            self.count + other.count,
            self.read + other.read,
            self.unknown or other.unknown,
        )
        known = [key for key in (self.low, self.high, other.low, other.high) if key is not None]
        self.low, self.high = min(known, default=None), max(known, default=None)
        both = None if self.listed is None or other.listed is None else self.listed + other.listed
        self.listed = both if both is not None and len(both) <= LISTED else None

    def keys(self) -> Keys:
        if self.listed is not None and not self.unknown:
            return Keys(tuple(sorted(set(self.listed))))
        if self.unknown or self.low is None or self.high is None:
            return Keys()
        return Keys(bounds=(self.low, self.high), are_streamed=self.count > LISTED and self.read == 0)


def tally(ops: Sequence[str], keys: Sequence[str | None]) -> KeyTally:
    """Of the rows with those *ops* and *keys*."""
    known = [key for key in keys if key is not None]
    short = len(known) <= LISTED and all(len(key) <= _LONGEST_LISTED for key in known)
    low, high = min(known, default=None), max(known, default=None)  # by code point, as Spark sorts UTF-8
    return KeyTally(len(keys), ops.count("r"), len(known) < len(keys), low, high, known if short else None)


def _between(key: str, low: str, high: str) -> str:
    return f"{key} BETWEEN {literal(low)} AND {literal(high)}"
