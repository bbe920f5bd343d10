"""Keys of a batch, as a predicate that lets a MERGE skip files and rows. Pure.

Delta's MERGE skips files only by conditions on the target table alone. Without such a condition, a MERGE of any size
reads every key of the table, and every column of each file that holds one of the batch's keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from strandline.model.tables import literal, literals

MAX_LISTED_KEYS: Final = 1_000
"""Maximum changes whose keys are listed one by one. For more changes, the predicate is the range from smallest to
largest key."""
_RANGES: Final = 16
"""Number of ranges for listed keys. Delta skips files for an IN list as for one range, so the list is cut into ranges
of neighbours."""
_LONGEST_LISTED: Final = 200
"""Maximum characters of a listed key. Listed keys also end up in the commit's ``predicate``, and an `_id` may have
megabytes."""


@dataclass(frozen=True)
class Keys:
    """Keys of a batch: a sorted list (*listed*) or an inclusive range (*bounds*).

    Neither: the batch may hold any key.
    """

    listed: tuple[str, ...] = ()
    bounds: tuple[str, str] | None = None
    is_stream_only: bool = False
    """True for more than `MAX_LISTED_KEYS` changes without a READ among them."""

    def predicate(self, key: str) -> str:
        """Return an SQL predicate: true if the batch may change the row with this *key* (a column, as SQL)."""
        if self.listed:
            size = -(-len(self.listed) // _RANGES)
            neighbours = (self.listed[start : start + size] for start in range(0, len(self.listed), size))
            ranges = " OR ".join(_between(key, some[0], some[-1]) for some in neighbours)
            return f"{key} IN ({literals(self.listed)}) AND ({ranges})"
        return "true" if self.bounds is None else _between(key, *self.bounds)


@dataclass
class KeyTally:
    """Counts and bounds of the keys in some bronze rows. Tallies of several partitions can be merged."""

    count: int = 0
    """Number of rows."""
    snapshot_rows: int = 0
    """Number of READs among the rows."""
    unknown: bool = False
    """True if a row has no key."""
    low: str | None = None
    high: str | None = None
    listed: list[str] | None = field(default_factory=list)
    """All keys, with duplicates. None: too many keys, or one is too long."""

    def merge(self, other: KeyTally) -> None:
        """Add *other* to this tally."""
        self.count, self.snapshot_rows, self.unknown = (
            self.count + other.count,
            self.snapshot_rows + other.snapshot_rows,
            self.unknown or other.unknown,
        )
        limits = [key for key in (self.low, self.high, other.low, other.high) if key is not None]
        self.low, self.high = min(limits, default=None), max(limits, default=None)
        both = None if self.listed is None or other.listed is None else self.listed + other.listed
        self.listed = both if both is not None and len(both) <= MAX_LISTED_KEYS else None

    def keys(self) -> Keys:
        """Return the keys as a list if they are few and short, otherwise as a range. Any key if a row has none."""
        if self.listed is not None and not self.unknown:
            return Keys(tuple(sorted(set(self.listed))))
        if self.unknown or self.low is None or self.high is None:
            return Keys()
        return Keys(
            bounds=(self.low, self.high), is_stream_only=self.count > MAX_LISTED_KEYS and self.snapshot_rows == 0
        )


def tally(ops: Sequence[str], keys: Sequence[str | None]) -> KeyTally:
    """Return the tally of rows with these *ops* and *keys*."""
    present_keys = [key for key in keys if key is not None]
    short = len(present_keys) <= MAX_LISTED_KEYS and all(len(key) <= _LONGEST_LISTED for key in present_keys)
    low, high = min(present_keys, default=None), max(present_keys, default=None)  # by code point, as Spark sorts UTF-8
    return KeyTally(
        len(keys), ops.count("r"), len(present_keys) < len(keys), low, high, present_keys if short else None
    )


def _between(key: str, low: str, high: str) -> str:
    return f"{key} BETWEEN {literal(low)} AND {literal(high)}"
