"""The steps of a walk: each reads the next element of every document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from strandline.model.bson.columnar.batch import BsonBatch, Flags, Ints, Leave
from strandline.model.bson.columnar.names import Hashes
from strandline.model.bson.columnar.sizes import value_ends

_FEWEST: Final = 8
"""Minimum documents of a step. A step costs as much as another way of reading a few documents."""
_MOST_STEPS: Final = 1_000
_ONE_NAME: Final = np.zeros(1, np.uint64)


@dataclass(frozen=True)
class Step:
    """Elements of one step, in the order of their documents."""

    rows: Ints
    """Index of each document (or array) among those of the walk."""
    kinds: NDArray[np.uint8]
    """BSON type of each element; of length one if all have the same."""
    at: Ints
    """Offset of each element: of its type byte."""
    starts: Ints
    ends: Ints
    """Offsets of its value."""
    hashes: Hashes
    """Hash of each name; of length one if all names are equal."""

    def where(self, chosen: Flags | Ints | slice) -> Step:
        """Return some of the elements."""
        kinds, hashes = _where(self.kinds, chosen), _where(self.hashes, chosen)
        return Step(self.rows[chosen], kinds, self.at[chosen], self.starts[chosen], self.ends[chosen], hashes)

    @staticmethod
    def joined(steps: Sequence[Step]) -> Step:
        """Return the elements of all steps."""
        arrays = (
            (step.rows, _spread(step.kinds, step), step.at, step.starts, step.ends, _spread(step.hashes, step))
            for step in steps
        )
        return Step(*map(np.concatenate, zip(*arrays, strict=True)))


def _where(values: NDArray[Any], chosen: Flags | Ints | slice) -> NDArray[Any]:
    return values if len(values) == 1 else values[chosen]


def _spread(values: NDArray[Any], step: Step) -> NDArray[Any]:
    return np.broadcast_to(values, step.rows.shape)


class Cursors:
    """One cursor for each document: where its next element begins."""

    def __init__(self, batch: BsonBatch, starts: Ints, ends: Ints, leave: Leave) -> None:
        self._batch, self._leave = batch, leave
        self._rows: Ints = np.arange(len(starts))
        self.at = starts + 4
        self._stop = ends - 1
        self._steps = 0
        self.drop(batch.uint8[self._stop] != 0)

    def are_live(self) -> bool:
        """Put the documents aside whose elements were all read. Return True if others go on."""
        self._keep(self.at < self._stop)
        if len(self._rows) < _FEWEST or self._steps == _MOST_STEPS:
            self._leave(self._rows)
            return False
        self._steps += 1
        return True

    def drop(self, flags: Flags) -> None:
        """Let the documents whose flag is True leave the batch."""
        if flags.any():
            self._leave(self._rows[flags])
            self._keep(~flags)

    def read(self, sizes: Ints | int, hashes: Hashes = _ONE_NAME) -> Step:
        """Return the elements at the cursors, and move each cursor to the next one.

        Args:
            sizes: Bytes of the names, with their zero bytes.
            hashes: See `Step`.
        """
        kinds, starts = self._batch.uint8[self.at], self.at + 1 + sizes
        if len(kinds) > 1 and (kinds == kinds[0]).all():
            kinds = kinds[:1]
        ends, fits = value_ends(self._batch, kinds, starts)
        step = Step(self._rows, kinds, self.at, starts, ends, hashes)
        fits &= ends <= self._stop
        if not fits.all():
            self.drop(~fits)
            step = step.where(fits)
        self.at = step.ends
        return step

    def _keep(self, flags: Flags) -> None:
        if not flags.all():
            self._rows, self.at, self._stop = self._rows[flags], self.at[flags], self._stop[flags]
