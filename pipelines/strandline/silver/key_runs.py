"""Ranges of ascending keys: they show that no key of a batch repeats, as in the chunks of a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Range = tuple[str, str]
"""Smallest and largest key, inclusive."""

_MOST: Final = 1_000
"""Maximum ranges of one part of a batch. A chunk has one, and a part of a stream has one for each event."""


@dataclass
class KeyRuns:
    """Ranges of ascending keys in some bronze rows, one for each run of rows with the same position.

    Rows of one chunk have the same position. A part may hold several chunks, in any order.
    """

    ranges: list[Range] | None = field(default_factory=list)
    """None: keys are missing, do not ascend, or are in too many ranges."""
    _position: str | None = None

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield *batches*, and add their keys and positions."""
        for batch in batches:
            self.add(batch["key"], batch["position"])
            yield batch

    def add(self, keys: pa.Array, positions: pa.Array) -> None:
        """Add the keys of the next rows."""
        if self.ranges is None or not len(keys):
            return
        is_end = pc.not_equal(positions[:-1], positions[1:]).fill_null(True)
        rises = pc.all(pc.or_(pc.less(keys[:-1], keys[1:]).fill_null(False), is_end)).as_py()
        cuts = (np.flatnonzero(is_end) + 1).tolist()
        if keys.null_count or not rises or len(self.ranges) + len(cuts) >= _MOST:
            self.ranges = None
            return
        runs = [(keys[low].as_py(), keys[end - 1].as_py()) for low, end in pairwise([0, *cuts, len(keys)])]
        first, before = runs[0], self.ranges[-1:]
        if before and positions[0].as_py() == self._position and before[0][1] < first[0]:
            runs[0] = (self.ranges.pop()[0], first[1])
        self.ranges += runs
        self._position = positions[-1].as_py()


def are_distinct(parts: Iterable[list[Range] | None]) -> bool:
    """Return True if no key repeats in the parts of a batch with these ranges. False: a key may repeat."""
    by_part = list(parts)
    ranges = sorted(chain.from_iterable(part or () for part in by_part))
    return None not in by_part and all(before[1] < after[0] for before, after in pairwise(ranges))
