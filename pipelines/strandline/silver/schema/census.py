"""Exact census of BSON types by path. Every document is counted; there is no sampling. Pure.

The executors count and the driver merges. The size of a census depends on the schema, not on the number of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.model.bson import raw as rb
from strandline.model.bson.decimal_digits import decimal_digits
from strandline.model.bson.poison import LONGEST_NAME, MOST_BYTES_OF_SHORT_JSON, json_problem

UUID_SUBTYPE = 4
NO_DECIMAL = "no decimal"
"""Type of a Decimal128 that no DECIMAL column can hold: NaN, an infinity, a negative zero."""


@dataclass
class Census:
    """Types found at one path.

    *types* are kinds of `Shape`, or MongoDB's type aliases where there is no column type. The digits are those of
    decimals: see `DecimalDigits`.
    """

    types: set[str] = field(default_factory=set)
    integer_digits: int = 0
    exact_scale: int = 0
    written_scale: int = 0
    fields: dict[str, Census] = field(default_factory=dict)
    element: Census | None = None
    poisoned: bool = False
    """True if a value here cannot be represented in JSON. `json_problem` should then check the documents."""

    def merge(self, other: Census) -> None:
        """Add the counts of *other* to this census."""
        self.types |= other.types
        self.integer_digits = max(self.integer_digits, other.integer_digits)
        self.exact_scale = max(self.exact_scale, other.exact_scale)
        self.written_scale = max(self.written_scale, other.written_scale)
        self.poisoned = self.poisoned or other.poisoned
        for name, inner in other.fields.items():
            self.fields.setdefault(name, Census()).merge(inner)
        if other.element is not None:
            self.element = self.element or Census()
            self.element.merge(other.element)

    @property
    def holds_poison(self) -> bool:
        """Return True if this path or any path below it is poisoned."""
        below = (*self.fields.values(), *((self.element,) if self.element is not None else ()))
        return self.poisoned or any(inner.holds_poison for inner in below)

    def along(self, path: tuple[str, ...], column: Callable[[str], str]) -> Census | None:
        """Return the census without the types that lead to no array at *path*. None: no type leads to one.

        Args:
            path: Columns that lead to the array, through documents and arrays of them.
            column: Returns the column of a field.
        """
        if "array" in self.types:
            element = self.element.along(path, column) if path and self.element is not None else self.element
            return None if path and element is None else replace(self, types={"array"}, element=element)
        below = (
            (name, one.along(path[1:], column)) for name, one in self.fields.items() if (column(name),) == path[:1]
        )
        inner = {name: one for name, one in below if one is not None}
        return replace(self, types={"struct"}, fields=self.fields | inner) if inner else None

    def to_json(self) -> dict[str, Any]:
        return {
            "types": sorted(self.types),
            "integer_digits": self.integer_digits,
            "exact_scale": self.exact_scale,
            "written_scale": self.written_scale,
            "fields": {name: inner.to_json() for name, inner in self.fields.items()},
            "element": None if self.element is None else self.element.to_json(),
            "poisoned": self.poisoned,
        }

    @staticmethod
    def from_json(content: dict[str, Any]) -> Census:
        return Census(
            set(content["types"]),
            content["integer_digits"],
            content["exact_scale"],
            content["written_scale"],
            {name: Census.from_json(inner) for name, inner in content["fields"].items()},
            None if content["element"] is None else Census.from_json(content["element"]),
            content["poisoned"],
        )


class CensusTaker:
    """Count the types of documents.

    Args:
        max_depth: Number of nested levels that are counted. A deeper subtree is recorded as "too deep" and becomes a
            VARIANT column.
    """

    def __init__(self, max_depth: int) -> None:
        self.census, self.max_depth = Census({"struct"}), max_depth

    def count(self, documents: Iterable[bytes]) -> Census:
        """Add *documents*, and return the census of all documents so far.

        Raises:
            MalformedBson: A document is damaged.
        """
        for document in documents:
            if len(document) > MOST_BYTES_OF_SHORT_JSON and json_problem(document) is not None:
                self.census.poisoned = True
            _count_fields(self.census, document, 0, self.max_depth)
        return self.census


def _count_fields(node: Census, raw: bytes, start: int, depth: int) -> None:
    fields = node.fields
    names: set[bytes] = set()
    for kind, name, value, end in rb.elements(raw, start):
        if name in names or len(name) > LONGEST_NAME:
            node.poisoned = True
        names.add(name)
        try:
            key = name.decode()
        except UnicodeDecodeError:
            node.poisoned = True
            continue  # no column can have this name: the decoder rescues the value
        inner = fields.get(key)
        if inner is None:
            inner = fields[key] = Census()
        count_value(inner, raw, kind, value, end, depth - 1)


def count_value(node: Census, raw: bytes, kind: int, value: int, end: int, depth: int) -> None:
    """Add the value at *raw[value:end]*.

    Args:
        depth: Nested levels that are counted from here on.
    """
    simple = SIMPLE_TYPES.get(kind)
    if simple is not None:
        node.types.add(simple)
        if kind == rb.STRING and not rb.is_text(raw[value + 4 : end - 1]):
            node.poisoned = True
    elif kind == rb.NULL:
        return
    elif kind in (rb.DOCUMENT, rb.ARRAY):
        _count_nested(node, raw, kind, value, end, depth)
    elif kind == rb.BINARY:
        node.types.add(binary_kind(raw, value, end))
    elif kind == rb.DECIMAL128:
        _count_decimal(node, raw, value)
    else:
        node.types.add(rb.TYPE_NAMES[kind])
        node.poisoned = node.poisoned or json_problem(rb.as_document(kind, raw[value:end])) is not None


SIMPLE_TYPES = {
    rb.STRING: "string",
    rb.INT32: "int",
    rb.INT64: "long",
    rb.DOUBLE: "double",
    rb.BOOLEAN: "bool",
    rb.DATE: "date",
    rb.OBJECT_ID: "objectId",
}


def _count_nested(node: Census, raw: bytes, kind: int, value: int, end: int, depth: int) -> None:
    if depth <= 0:
        node.types.add("too deep")
        node.poisoned = node.poisoned or json_problem(rb.as_document(kind, raw[value:end])) is not None
        return
    if kind == rb.DOCUMENT:
        node.types.add("struct")
        _count_fields(node, raw, value, depth)
        return
    node.types.add("array")
    if node.element is None:
        node.element = Census()
    for inner_kind, _, inner_value, inner_end in rb.elements(raw, value):
        count_value(node.element, raw, inner_kind, inner_value, inner_end, depth - 1)


def binary_kind(raw: bytes, value: int, end: int) -> str:
    """Return the kind of a BSON binary: ``binary`` (subtype 0), ``uuid`` (subtype 4, 16 bytes) or ``binData``.

    A ``binData`` value has no column type, because a column would lose its subtype.
    """
    subtype = raw[value + 4]
    if subtype == UUID_SUBTYPE and end - value == 21:
        return "uuid"
    return "binary" if subtype == 0 else "binData"


def _count_decimal(node: Census, raw: bytes, value: int) -> None:
    digits = decimal_digits(rb.decimal_at(raw, value))
    if digits is None:
        node.types.add(NO_DECIMAL)
        return
    node.types.add("decimal")
    node.integer_digits = max(node.integer_digits, digits.whole)
    node.exact_scale = max(node.exact_scale, digits.exact_scale)
    node.written_scale = max(node.written_scale, digits.written_scale)
