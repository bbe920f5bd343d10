"""Rows of a silver table from parts of bronze that threads read and type. Spark would move each document twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.model.shape import Shape
from strandline.silver.small_batch import state_of, state_of_single, typed, without_deleted_values

_MOST_HELD: Final = 128 << 20
"""Bytes of documents."""
_PART: Final = 8 << 20
"""Bytes of documents whose rows are typed together."""
_GROUP: Final = 32 << 20
"""Bytes of a row group, not compressed."""


@dataclass(frozen=True)
class HeldKeys:
    """Keys of a batch whose changes are held in memory together."""

    keys: pa.Array
    size: int
    """Bytes of all documents of their changes."""
    are_all: bool = False
    """True: these are all keys of the batch."""

    @property
    def fit_memory(self) -> bool:
        return self.size <= _MOST_HELD

    @staticmethod
    def among(changes: pa.Table, of_table: Sequence[pa.Array] = (), *, without_documents: bool = False) -> HeldKeys:
        """Return the keys that more than one change has, and those that the table has.

        Args:
            changes: All changes: columns ``key`` and ``document_size``.
            of_table: Keys that the table has.
            without_documents: Hold keys of changes without a document, too. They may have to be folded.
        """
        counts = pc.value_counts(changes["key"])
        parts = [counts.filter(pc.greater(counts.field("counts"), 1)).field("values"), *of_table]
        if without_documents:
            parts += changes.filter(pc.is_null(changes["document_size"]))["key"].chunks
        keys = pc.unique(pa.chunked_array(parts, pa.string()))
        return HeldKeys(keys, _bytes(changes.filter(pc.is_in(changes["key"], keys))) if len(keys) else 0)

    def changes(self, changes: pa.Table) -> pa.Table:
        """Return the *changes* of these keys."""
        return changes.filter(pc.is_in(changes["key"], self.keys))

    @staticmethod
    def all(changes: pa.Table) -> HeldKeys:
        """Return all keys of the *changes*."""
        return HeldKeys(pc.unique(changes["key"]), _bytes(changes), are_all=True)


def _bytes(changes: pa.Table) -> int:
    return pc.sum(changes["document_size"].cast(pa.int64())).as_py() or 0


@dataclass(frozen=True)
class BatchRows:
    """Rows of a table from the changes of a batch.

    Args:
        held: Keys whose changes come together.
        shape: Shape of the table.
        hard_deletes: True: tombstones have no values.
        watermark: Purge watermark of the table. Rows below it are left out, unless a MERGE finds their keys.
        oldest: Positions of live rows: the smallest of each part.
    """

    held: HeldKeys
    shape: Shape
    hard_deletes: bool
    watermark: str
    oldest: list[str] = field(default_factory=list)

    def single(self, changes: pa.Table) -> pa.Table | None:
        """Return the rows of keys that are not held: each has one change. None: there are none."""
        rows = changes
        if len(self.held.keys):
            rows = changes.filter(pc.invert(pc.is_in(changes["key"], self.held.keys)))
        return self.new(self.typed(state_of_single(rows))) if rows.num_rows else None

    def new(self, rows: pa.Table) -> pa.Table:
        """Return those of *rows* that a table without their keys receives."""
        return rows.filter(pc.greater_equal(rows["_position"], self.watermark)) if self.watermark else rows

    def typed(self, state: pa.Table) -> pa.Table:
        """Return the rows of a *state*: see `state_of`."""
        rows = typed(without_deleted_values(state) if self.hard_deletes else state, self.shape)
        smallest = pc.min(rows["_position"].filter(pc.invert(rows["_deleted"]))).as_py()
        self.oldest.extend([] if smallest is None else [smallest])
        return rows

    def typed_parts(self, state: pa.Table | None) -> list[pa.Table]:
        """Return the rows of a *state* in parts of some megabytes. None: there are none."""
        if state is None:
            return []
        size = max(1, _PART * state.num_rows // max(1, state.nbytes))
        return [self.typed(state.slice(first, size)) for first in range(0, state.num_rows, size)]


def state_of_held(changes: pa.Table) -> pa.Table:
    """Return `state_of`. It works on one row at a time, so only keys with several changes go through it."""
    several = HeldKeys.among(changes).keys
    is_several = pc.is_in(changes["key"], several)
    states = [state_of(changes.filter(is_several)), state_of_single(changes.filter(pc.invert(is_several)))]
    return pa.concat_tables(states)


def row_groups(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables to tables of some megabytes, without a copy."""
    group: list[pa.Table] = []
    size = 0
    for part in parts:
        group.append(part)
        size += part.nbytes
        if size >= _GROUP:
            yield pa.concat_tables(group)
            group, size = [], 0
    if any(table.num_rows for table in group):
        yield pa.concat_tables(group)
