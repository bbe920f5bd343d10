"""The fields of documents: the elements of a walk, sorted by name and BSON type. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.model.bson.columnar.batch import LONGEST_NAME, BsonBatch, Ints, Leave
from strandline.model.bson.columnar.names import hashed_names
from strandline.model.bson.columnar.walk import Cursors, Step

_RARE: Final = 3
"""Elements with one name from which on it is worth an array of its own."""


@dataclass(frozen=True)
class Positions:
    """Positions of values of one BSON type, in the order of their rows. No row has two."""

    rows: Ints
    starts: Ints
    ends: Ints


Field = dict[int, Positions]
"""Positions of the values of one field, by BSON type."""


def read_fields(batch: BsonBatch, starts: Ints, ends: Ints, leave: Leave) -> dict[str, Field]:
    """Return the fields of the documents between *starts* and *ends*."""
    cursors, steps, mixed = Cursors(batch, starts, ends, leave), list[tuple[bytes, Step]](), list[Step]()
    while cursors.are_live():
        name = batch.name_at(int(cursors.at[0]) + 1)
        if len(name) <= LONGEST_NAME and batch.holds(cursors.at + 1, name).all():
            steps.append((name, cursors.read(len(name))))
            continue
        hashes, sizes = hashed_names(batch, cursors.at + 1)
        is_too_long = sizes == 0
        cursors.drop(is_too_long)
        mixed.append(cursors.read(sizes[~is_too_long], hashes[~is_too_long]))
    named: dict[bytes, list[Step]] = {}
    for name, step in (*steps, *_by_name(batch, mixed, leave)):
        named.setdefault(name, []).append(step)
    return dict(_fields(named, leave))


def _by_name(batch: BsonBatch, mixed: list[Step], leave: Leave) -> Iterator[tuple[bytes, Step]]:
    """Sort the elements of steps with different names. Documents with a rare name leave the batch."""
    if not mixed:
        return
    whole = Step.joined(mixed)
    numbers = pa.array(whole.hashes).dictionary_encode().indices.to_numpy()
    is_rare = np.bincount(numbers)[numbers] < _RARE
    leave(whole.rows[is_rare])
    order = np.flatnonzero(~is_rare)
    order = order[np.lexsort((_narrow(whole.rows[order]), _narrow(numbers[order])))]
    whole, numbers = whole.where(order), numbers[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for first, end in pairwise((*starts.tolist(), len(numbers))):
        step = whole.where(slice(first, end))
        name = batch.name_at(int(step.at[0]) + 1)
        is_same = batch.holds(step.at + 1, name)
        if not is_same.all():  # another name with the same hash
            leave(step.rows[~is_same])
            step = step.where(is_same)
        yield name, step


def _fields(named: dict[bytes, list[Step]], leave: Leave) -> Iterator[tuple[str, Field]]:
    for name, steps in named.items():
        step = _without_twins(steps[0] if len(steps) == 1 else _sorted(steps), leave)
        try:
            yield name[:-1].decode(), split_by_type(step.rows, step.kinds, step.starts, step.ends)
        except UnicodeDecodeError:
            leave(step.rows)


def _sorted(steps: list[Step]) -> Step:
    whole = Step.joined(steps)
    return whole.where(np.argsort(_narrow(whole.rows), kind="stable"))


def _narrow(numbers: Ints) -> NDArray[Any]:
    """Return *numbers* in the smallest type: numpy sorts 16 bits ten times as fast as 64."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _without_twins(step: Step, leave: Leave) -> Step:
    """Let the documents leave the batch that have the name twice. Return the first element of each document."""
    is_twin = step.rows[1:] == step.rows[:-1]
    if not is_twin.any():
        return step
    leave(step.rows[1:][is_twin])
    return step.where(np.concatenate((np.ones(1, np.bool_), ~is_twin)))


def split_by_type(rows: Ints, kinds: NDArray[np.uint8], starts: Ints, ends: Ints) -> Field:
    """Return the positions of values, by BSON type.

    Args:
        kinds: Type of each value; of length one if all have the same.
    """
    if len(kinds) and (kinds == kinds[0]).all():
        return {int(kinds[0]): Positions(rows, starts, ends)}
    field = {}
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        places = np.flatnonzero(kinds == kind)
        field[kind] = Positions(rows[places], starts[places], ends[places])
    return field
