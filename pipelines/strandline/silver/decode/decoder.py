"""Decode raw BSON into the values of typed columns. Pure; runs on the executors.

A value that fits its column is stored unchanged. Any other value is rescued: it is kept by path, with its BSON type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Any

from strandline.model.bson import raw as rb
from strandline.model.bson.poison import LONGEST_NAME
from strandline.model.bson.template import Fields, Items, Leaf, Node, Path, Values
from strandline.model.bson.template_cache import BsonTemplateCache
from strandline.model.shape import Shape
from strandline.silver.decode.scalars import Misfit, all_of, scalars_of, variant_text

Rescued = dict[str, dict[str, Any]]
ColumnReader = Callable[[Sequence[Values]], list[Any]]
"""Reads one value from each document (or array element) of the same layout. Raises `Misfit` if a value does not fit."""

_SHOWN_OF_A_NAME = 100


class Decoder:
    """Decode documents into the columns of one shape.

    Args:
        shape: Root of the table. Values are returned in the order of its columns.
    """

    def __init__(self, shape: Shape) -> None:
        self.names = [name for name, _ in shape.columns()]
        self._whole = next((name for name, inner in shape.columns() if inner.is_whole), None)
        self._fields = _Fields(shape, keeps_unknown=self._whole is not None)
        self._templates: BsonTemplateCache[dict[str, ColumnReader]] = BsonTemplateCache(
            self._fields.is_walked, self._fields.readers
        )

    def decode(self, document: bytes) -> tuple[list[Any], str | None]:
        """Return one value for each column, and the rescued values as JSON ``{path: {"type": …, "value": …}}``.

        None: all values fit.

        Raises:
            MalformedBson: The document is damaged.
        """
        rescued: Rescued = {}
        found = self._fields.read(document, 0, "", rescued)
        if self._whole is not None:
            found[self._whole] = variant_text(document, rb.DOCUMENT, 0, len(document))
        return [found.get(name) for name in self.names], json.dumps(rescued) if rescued else None

    def decode_all(self, documents: Sequence[bytes | None]) -> tuple[list[list[Any]], list[str | None]]:
        """Decode all *documents*: return the values of each column, and the rescued values of each document.

        A missing document (None) gives nulls. Documents of the same layout are decoded together, for speed.

        Raises:
            MalformedBson: A document is damaged.
        """
        columns: list[list[Any]] = [[None] * len(documents) for _ in self.names]
        rescued: list[str | None] = [None] * len(documents)
        alike, walked = self._by_layout(documents)
        for readers, places, values in alike:
            try:
                found = {name: read(values) for name, read in readers.items()}
            except Misfit:
                walked += places
                continue
            if self._whole is not None:
                found[self._whole] = [
                    variant_text(documents[at] or b"", rb.DOCUMENT, 0, len(documents[at] or b"")) for at in places
                ]
            for name, column in zip(self.names, columns, strict=True):
                for place, value in zip(places, found.get(name, ()), strict=False):
                    column[place] = value
        for place in walked:
            row, rescued[place] = self.decode(documents[place] or b"")
            for column, value in zip(columns, row, strict=True):
                column[place] = value
        return columns, rescued

    def _by_layout(
        self, documents: Sequence[bytes | None]
    ) -> tuple[list[tuple[dict[str, ColumnReader], list[int], list[Values]]], list[int]]:
        """Group documents by layout.

        Returns:
            For each known layout: its column readers, the indexes of its documents, and their values. Then the indexes
            of documents without a known layout.
        """
        alike: dict[int, tuple[dict[str, ColumnReader], list[int], list[Values]]] = {}
        walked: list[int] = []
        for place, document in enumerate(documents):
            if document is None:
                continue
            found = self._templates.find(document)
            if found is None:
                walked.append(place)
                self._templates.learn(document)
            else:
                readers, values = found
                _, places, group = alike.setdefault(id(readers), (readers, [], []))
                places.append(place)
                group.append(values)
        return list(alike.values()), walked


class _Fields:
    """Read the fields of a document, at any level. Built once per shape, because a document has dozens of values.

    Args:
        keeps_unknown: True if fields without a column need no rescue, because another column holds the whole document.
    """

    kind = rb.DOCUMENT

    def __init__(self, shape: Shape, *, keeps_unknown: bool = False) -> None:
        known = ((shape.field_name_of(name), name, inner) for name, inner in shape.columns() if not inner.is_whole)
        self._fields = {field.encode(): (field, name, _Value(inner)) for field, name, inner in known}
        self._keeps_unknown = keeps_unknown

    def read(self, raw: bytes, start: int, prefix: str, rescued: Rescued) -> dict[str, Any]:
        values: dict[str, Any] = {}
        fields = self._fields
        for kind, name, value, end in rb.elements(raw, start):
            known = fields.get(name)
            if known is not None and known[1] not in values:
                own, key, column = known
                values[key] = column.read(raw, kind, value, end, prefix, own, rescued)
            elif known is not None or not self._keeps_unknown:
                _rescue(rescued, prefix + name.decode("utf-8", "backslashreplace"), raw, kind, value, end)
        return values

    def is_walked(self, kind: int, path: Path) -> bool:
        known = self._fields.get(path[0])
        return known is not None and known[2].is_walked(kind, path[1:])

    def readers(self, node: Fields) -> dict[str, ColumnReader] | None:
        """Return the reader of each column for documents of this layout.

        None: a value of the layout must be rescued.
        """
        readers: dict[str, ColumnReader] = {}
        for name, inner in node.fields:
            known = self._fields.get(name)
            if known is None and (self._keeps_unknown or (isinstance(inner, Leaf) and inner.kind == rb.NULL)):
                continue
            read = known[2].reader(inner) if known is not None and known[1] not in readers else None
            if known is None or read is None:
                return None
            readers[known[1]] = read
        return readers

    def reader(self, node: Fields) -> ColumnReader | None:
        readers = self.readers(node)
        if readers is None:
            return None
        names, columns = tuple(readers), tuple(readers.values())
        if not names:
            return lambda rows: [{} for _ in rows]
        return lambda rows: [
            dict(zip(names, row, strict=True)) for row in zip(*(read(rows) for read in columns), strict=True)
        ]


class _Elements:
    """Read the elements of an array, all into one shape."""

    kind = rb.ARRAY

    def __init__(self, shape: Shape) -> None:
        self._element = _Value(shape)

    def read(self, raw: bytes, start: int, prefix: str, rescued: Rescued) -> list[Any]:
        read = self._element.read
        found = enumerate(rb.elements(raw, start))
        return [read(raw, kind, value, end, prefix, index, rescued) for index, (kind, _, value, end) in found]

    def is_walked(self, kind: int, path: Path) -> bool:
        return self._element.is_walked(kind, path[1:])

    def reader(self, node: Items) -> ColumnReader | None:
        place, read_all = node.place, _read_empty if node.item is None else self._element.reader(node.item)
        if read_all is None:
            return None

        def read(rows: Sequence[Values]) -> list[Any]:
            arrays = [row[place] for row in rows]
            elements = iter(read_all(list(chain.from_iterable(arrays))))
            return [list(islice(elements, len(array))) for array in arrays]

        return read


class _Value:
    """Read one value into a shape, or rescue it."""

    def __init__(self, shape: Shape) -> None:
        self._shape, self._scalars = shape, scalars_of(shape)
        self._nested: _Fields | _Elements | None = None
        if shape.kind == "struct":
            self._nested = _Fields(shape)
        elif shape.kind == "array" and shape.element is not None:
            self._nested = _Elements(shape.element)

    def read(self, raw: bytes, kind: int, value: int, end: int, prefix: str, name: str | int, rescued: Rescued) -> Any:
        scalar = self._scalars.get(kind)
        if scalar is not None:
            try:
                return scalar(raw, value, end)
            except Misfit:
                pass
        elif self._nested is not None and kind == self._nested.kind:
            return self._nested.read(raw, value, f"{prefix}{name}.", rescued)
        _rescue(rescued, f"{prefix}{name}", raw, kind, value, end)
        return None

    def is_walked(self, kind: int, path: Path) -> bool:
        """Return True if the document or array at *path* below here is read value by value, not as a whole."""
        if self._nested is None:
            return False
        return self._nested.is_walked(kind, path) if path else kind == self._nested.kind

    def reader(self, node: Node) -> ColumnReader | None:
        """Return the reader for values of this layout. None: they, or something in them, must be rescued."""
        if isinstance(node, Fields):
            return self._nested.reader(node) if isinstance(self._nested, _Fields) else None
        if isinstance(node, Items):
            return self._nested.reader(node) if isinstance(self._nested, _Elements) else None
        place, read_all = node.place, all_of(self._shape, node.kind)
        if read_all is None and self._nested is not None and node.kind == self._nested.kind:
            read_all = self._read_whole
        return None if read_all is None else lambda rows: read_all([row[place] for row in rows])

    def _read_whole(self, values: Sequence[bytes]) -> list[Any]:
        """Read arrays whose elements have different layouts."""
        assert self._nested is not None
        rescued: Rescued = {}
        found = [self._nested.read(value, 0, "", rescued) for value in values]
        if rescued:
            raise Misfit
        return found


def _read_empty(_: Sequence[Values]) -> list[Any]:
    return []


def _rescue(rescued: Rescued, path: str, raw: bytes, kind: int, value: int, end: int) -> None:
    if kind == rb.NULL:
        return  # the column is null anyway; `_document` shows whether the field is null or missing
    unique = path if len(path) <= LONGEST_NAME else path[:_SHOWN_OF_A_NAME] + "…"
    while unique in rescued:  # the second of two equal names in one document
        unique += "'"
    rescued[unique] = {"type": rb.TYPE_NAMES[kind], "value": json.loads(variant_text(raw, kind, value, end))}
