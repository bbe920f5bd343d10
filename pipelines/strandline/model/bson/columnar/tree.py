"""The tree of a batch: documents, their fields, and the values of each field by BSON type. Pure, lazy."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch, Flags, Ints
from strandline.model.bson.columnar.elements import read_elements
from strandline.model.bson.columnar.fields import Field, Positions, read_fields

Node = dict[int, "Values"]
"""All values at one path, by BSON type."""


_FEWEST: Final = 40
"""Minimum documents of a batch. Fewer are read sooner one by one."""


class Parents(Protocol):
    """Documents or arrays: what the rows of values are numbers of."""

    batch: BsonBatch

    @property
    def roots(self) -> Ints:
        """Number of each row's document in the batch."""

    def path(self, row: int, name: str) -> str:
        """Return the path of a row's value, from the top."""


class Values:
    """Values of one BSON type at one path."""

    def __init__(self, kind: int, positions: Positions, parents: Parents, name: str = "") -> None:
        self.kind, self.batch = kind, parents.batch
        self.rows, self.starts, self.ends = positions.rows, positions.starts, positions.ends
        self._parents, self._name = parents, name

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, flags: Flags) -> Values:
        """Return the values whose flag is True."""
        positions = Positions(self.rows[flags], self.starts[flags], self.ends[flags])
        return Values(self.kind, positions, self._parents, self._name)

    def items(self, kind: str, offset: int = 0) -> NDArray[Any]:
        """Return the bytes of each value at *offset*, as an item of this type."""
        return self.batch.items(kind)[self.starts + offset]

    @cached_property
    def roots(self) -> Ints:
        return self._parents.roots[self.rows]

    def path(self, place: int) -> str:
        return self._parents.path(int(self.rows[place]), self._name)

    @cached_property
    def documents(self) -> Documents:
        return Documents(self.batch, self.starts, self.ends, self)

    @cached_property
    def arrays(self) -> Arrays:
        return Arrays(self)

    def whole(self) -> pa.Array:
        """Return the bytes of each value."""
        return self.batch.binaries(self.starts, self.ends)

    @cached_property
    def texts(self) -> tuple[pa.Array, Flags | None]:
        """The texts, and the flags of those that are not UTF-8, which are empty here. None: all are UTF-8."""
        starts, ends = self.starts + 4, self.ends - 1
        texts = self.batch.binaries(starts, ends)
        try:
            return texts.cast(pa.string()), None
        except pa.ArrowInvalid:
            is_wrong = np.array([not rb.is_text(text) for text in texts.to_pylist()], np.bool_)
            return self.batch.binaries(starts, np.where(is_wrong, starts, ends)).cast(pa.string()), is_wrong


class Documents:
    """Documents at one path."""

    def __init__(self, batch: BsonBatch, starts: Ints, ends: Ints, values: Values | None = None) -> None:
        self.batch, self.starts, self.ends, self._values = batch, starts, ends, values

    @staticmethod
    def of(batch: BsonBatch) -> Documents:
        """Return the documents of the batch. Those that are not whole leave it."""
        starts, ends = batch.starts, batch.ends
        is_whole = (ends - starts >= rb.EMPTY) & (batch.int32(starts) == ends - starts) & (len(batch) >= _FEWEST)
        batch.has_left |= ~is_whole
        return Documents(batch, starts, np.where(is_whole, ends, starts + rb.EMPTY))

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def roots(self) -> Ints:
        return np.arange(len(self)) if self._values is None else self._values.roots

    @cached_property
    def fields(self) -> dict[str, Node]:
        fields = read_fields(self.batch, self.starts, self.ends, self._leave)
        return {name: _node(field, self, name) for name, field in fields.items()}

    def path(self, row: int, name: str) -> str:
        return name if self._values is None else f"{self._values.path(row)}.{name}"

    def _leave(self, rows: Ints) -> None:
        self.batch.has_left[self.roots[rows]] = True


class Arrays:
    """Arrays at one path."""

    def __init__(self, values: Values) -> None:
        self.batch, self._values = values.batch, values
        self.offsets, elements = read_elements(self.batch, values.starts, values.ends, self._leave)
        self.elements: Node = _node(elements, self, "")

    @cached_property
    def roots(self) -> Ints:
        return np.repeat(self._values.roots, np.diff(self.offsets))

    def path(self, row: int, _name: str) -> str:
        place = int(np.searchsorted(self.offsets, row, "right")) - 1
        return f"{self._values.path(place)}.{row - int(self.offsets[place])}"

    def _leave(self, rows: Ints) -> None:
        self.batch.has_left[self._values.roots[rows]] = True


def _node(field: Field, parents: Parents, name: str) -> Node:
    return {kind: Values(kind, positions, parents, name) for kind, positions in field.items()}
