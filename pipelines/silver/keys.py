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
from pipelines.model.tables import literal

LISTED: Final = 1_000
"""About so many keys are named one by one; of more the smallest and the largest are."""
_LONGEST_LISTED: Final = 1_000
"""Characters: an `_id` may have megabytes, which the driver should not hold by the thousand."""


@dataclass(frozen=True)
class Keys:
    """The keys of a batch: these (*listed*), or all between two (*bounds*, inclusive); with neither, any."""

    listed: tuple[str, ...] = ()
    bounds: tuple[str, str] | None = None

    def among(self, key: str) -> str:
        """SQL: whether a row of that *key* may be one that the batch changes."""
        if self.listed:
            return f"{key} IN ({', '.join(map(literal, self.listed))})"
        return "true" if self.bounds is None else f"{key} BETWEEN {' AND '.join(map(literal, self.bounds))}"


def keys_of(changes: DataFrame) -> Keys:
    """I/O: one job over the keys of bronze rows, and where they are few, one that lists them."""
    keys = changes.where(F.col("op").isin(*CHANGE_OPS)).select("key")
    length, unknown = F.max(F.length("key")), F.count_if(F.col("key").isNull())
    found = keys.agg(F.min("key"), F.max("key"), F.approx_count_distinct("key"), length, unknown).first()
    assert found is not None  # an aggregate has one row
    low, high, count, longest, unknown_keys = found
    if low is None or unknown_keys:
        return Keys()
    if count > LISTED or longest > _LONGEST_LISTED:
        return Keys(bounds=(low, high))
    return Keys(tuple(sorted(row["key"] for row in keys.distinct().collect())))
