"""Decode raw BSON into the values of typed columns. Pure; runs on the executors.

A value that fits its column is stored unchanged. Any other value is rescued: it is kept by path, with its BSON type.
"""

from __future__ import annotations

import json
from typing import Any

from strandline.model.bson import raw as rb
from strandline.model.bson.poison import LONGEST_NAME
from strandline.model.shape import Shape
from strandline.silver.decode.scalars import Misfit, scalars_of, variant_text

Rescued = dict[str, dict[str, Any]]

_SHOWN_OF_A_NAME = 100


class Decoder:
    """Decode documents into the columns of one shape.

    Args:
        shape: Root of the table. Values are returned in the order of its columns.
        keeps_unknown: True if fields without a column need no rescue.
    """

    def __init__(self, shape: Shape, *, keeps_unknown: bool = False) -> None:
        self.names = [name for name, _ in shape.columns()]
        self._whole = next((name for name, inner in shape.columns() if inner.is_whole), None)
        self._fields = _Fields(shape, keeps_unknown=keeps_unknown or self._whole is not None)

    def decode(self, document: bytes) -> tuple[list[Any], str | None]:
        """Return one value for each column, and the rescued values as JSON ``{path: {"type": …, "value": …}}``.

        None: all values fit.

        Raises:
            MalformedBson: The document is damaged.
        """
        rescued: Rescued = {}
        values = self._fields.read(document, 0, "", rescued)
        if self._whole is not None:
            values[self._whole] = variant_text(document, rb.DOCUMENT, 0, len(document))
        return [values.get(name) for name in self.names], json.dumps(rescued) if rescued else None


class _Fields:
    """Read the fields of a document, at any level. Built once per shape, because a document has dozens of values.

    Args:
        keeps_unknown: True if fields without a column need no rescue, because another column holds the whole document.
    """

    kind = rb.DOCUMENT

    def __init__(self, shape: Shape, *, keeps_unknown: bool = False) -> None:
        typed = ((name, inner) for name, inner in shape.fields.items() if inner.has_column and not inner.is_whole)
        self._fields = {
            (field := shape.field_name_of(name)).encode(): (
                *(field, name),
                _Value(inner if inner.is_kept else inner.whole()),
            )
            for name, inner in typed
        }
        self._keeps_unknown = keeps_unknown

    def read(self, raw: bytes, start: int, prefix: str, rescued: Rescued) -> dict[str, Any]:
        values: dict[str, Any] = {}
        fields = self._fields
        for kind, name, value, end in rb.elements(raw, start):
            field = fields.get(name)
            if field is not None and field[1] not in values:
                own, key, column = field
                values[key] = column.read(raw, kind, value, end, prefix, own, rescued)
            elif field is not None or not self._keeps_unknown:
                rescue(rescued, prefix + name.decode("utf-8", "backslashreplace"), raw, kind, value, end)
        return values


class _Elements:
    """Read the elements of an array, all into one shape."""

    kind = rb.ARRAY

    def __init__(self, shape: Shape) -> None:
        self._element = _Value(shape)

    def read(self, raw: bytes, start: int, prefix: str, rescued: Rescued) -> list[Any]:
        read_value = self._element.read
        elements = enumerate(rb.elements(raw, start))
        return [read_value(raw, kind, value, end, prefix, index, rescued) for index, (kind, _, value, end) in elements]


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
        rescue(rescued, f"{prefix}{name}", raw, kind, value, end)
        return None


def rescue(rescued: Rescued, path: str, raw: bytes, kind: int, value: int, end: int) -> None:
    """Add the value at *raw[value:end]*."""
    if kind == rb.NULL:
        return  # the column is null anyway; `_document` shows whether the field is null or missing
    unique = shown_path(path)
    while unique in rescued:  # the second of two equal names in one document
        unique += "'"
    rescued[unique] = {"type": rb.TYPE_NAMES[kind], "value": json.loads(variant_text(raw, kind, value, end))}


def shown_path(path: str) -> str:
    """Return the path of a rescued value, shortened if `parse_json` would refuse it."""
    return path if len(path) <= LONGEST_NAME else path[:_SHOWN_OF_A_NAME] + "…"
