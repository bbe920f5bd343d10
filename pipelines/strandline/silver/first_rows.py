"""The first rows of a table, from parts of bronze that threads read and type. Spark would move each document twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.model.shape import Shape
from strandline.silver.small_batch import state_of, state_of_single, typed, without_deleted_values

_MOST_REPEATED: Final = 64 << 20
_GROUP: Final = 32 << 20
"""Bytes of a row group, not compressed."""


@dataclass(frozen=True)
class RepeatedKeys:
    """Keys that more than one change has, in a batch."""

    keys: pa.Array
    size: int
    """Bytes of all documents of their changes."""

    @property
    def fit_memory(self) -> bool:
        return self.size <= _MOST_REPEATED

    @staticmethod
    def among(changes: pa.Table) -> RepeatedKeys:
        """Find them among all changes: columns ``key`` and ``document_size``."""
        counts = pc.value_counts(changes["key"])
        repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        sizes = changes["document_size"].filter(pc.is_in(changes["key"], repeated)) if len(repeated) else pa.array([])
        return RepeatedKeys(repeated, pc.sum(sizes.cast(pa.int64())).as_py() or 0)


@dataclass(frozen=True)
class FirstRows:
    """Types changes for a table that has no row.

    Args:
        shape: Shape of the table.
        hard_deletes: True: tombstones have no values.
    """

    repeated: RepeatedKeys
    shape: Shape
    hard_deletes: bool

    def single(self, changes: pa.Table) -> pa.Table | None:
        """Return the rows of keys with one change. None: there are none."""
        rows = changes
        if len(self.repeated.keys):
            rows = changes.filter(pc.invert(pc.is_in(changes["key"], self.repeated.keys)))
        return self._typed(state_of_single(rows)) if rows.num_rows else None

    def of_repeated(self, changes: pa.Table) -> pa.Table:
        """Return the changes of the repeated keys."""
        return changes.filter(pc.is_in(changes["key"], self.repeated.keys))

    def others(self, changes: pa.Table) -> pa.Table:
        """Return the rows of the repeated keys: the newest change and the newest document of each."""
        return self._typed(state_of(changes))

    def _typed(self, state: pa.Table) -> pa.Table:
        return typed(without_deleted_values(state) if self.hard_deletes else state, self.shape)


def row_groups(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables to tables of some megabytes, without a copy."""
    group: list[pa.Table] = []
    for part in parts:
        group.append(part)
        if sum(table.nbytes for table in group) >= _GROUP:
            yield pa.concat_tables(group)
            group = []
    if any(table.num_rows for table in group):
        yield pa.concat_tables(group)
