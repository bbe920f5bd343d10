"""Which keys a batch of changes holds: the predicate by which files and rows that it cannot meet are skipped.

Delta's MERGE looks for files by what its condition says of the table alone. Without such a word it reads every key of the table, and every
column of every file that holds one of the batch's, whatever the size of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.model.columns import CHANGE_OPS
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


def keys_of(changes: DataFrame) -> Keys:
    """I/O: reads the keys of bronze rows; one short job where the rows are few."""
    keys = changes.where(F.col("op").isin(*CHANGE_OPS)).select("key", "op")
    first = [row[0] for row in keys.select(F.substring("key", 1, _LONGEST_LISTED + 1)).limit(LISTED + 1).collect()]
    if len(first) <= LISTED and all(key is not None and len(key) <= _LONGEST_LISTED for key in first):
        return Keys(tuple(sorted(set(first))))
    told = (F.min("key"), F.max("key"), F.count_if(F.col("key").isNull()), F.count("*"), F.count_if(F.col("op") == "r"))
    (low, high, unknown, count, read) = keys.agg(*told).collect()[0]
    return Keys() if unknown else Keys(bounds=(low, high), are_streamed=count > LISTED and read == 0)


def _between(key: str, low: str, high: str) -> str:
    return f"{key} BETWEEN {literal(low)} AND {literal(high)}"
