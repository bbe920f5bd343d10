"""The shape of a silver table: a tree of BSON kinds.

    null        nothing but nulls, empty arrays and empty documents so far: it waits, no column yet
    int long double decimal string objectId bool date binary uuid     scalars
    json        canonical Extended JSON as STRING (an `_id` of mixed types)
    variant     canonical Extended JSON as VARIANT (mixed or rare types, or too deep)
    struct      a document, by field name
    array       of one element shape

Pure; stored with the table, so that RESTORE takes it back along.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipelines.model.tables import quoted

_SPARK_TYPES = {
    "int": "INT",
    "long": "BIGINT",
    "double": "DOUBLE",
    "string": "STRING",
    "objectId": "STRING",
    "bool": "BOOLEAN",
    "date": "TIMESTAMP",
    "binary": "BINARY",
    "uuid": "STRING",
    "json": "STRING",
    "variant": "VARIANT",
}


@dataclass
class Shape:
    """One node. *scale* belongs to ``decimal``, *fields* to ``struct``, *element* to ``array``."""

    kind: str = "null"
    scale: int = 0
    fields: dict[str, Shape] = field(default_factory=dict)
    element: Shape | None = None

    @property
    def has_column(self) -> bool:
        """Whether there is something to make a column of: a struct without a known field and an array without a known element wait."""
        if self.kind == "struct":
            return any(inner.has_column for inner in self.fields.values())
        if self.kind == "array":
            return self.element is not None and self.element.has_column
        return self.kind != "null"

    def columns(self) -> Iterator[tuple[str, Shape]]:
        """Fields of a struct that have a column, in order."""
        return ((name, inner) for name, inner in self.fields.items() if inner.has_column)

    def spark_type(self) -> str:
        """As Spark DDL."""
        if self.kind == "decimal":
            return f"DECIMAL(38,{self.scale})"
        if self.kind == "struct":
            return "STRUCT<" + ", ".join(f"{quoted(name)}: {inner.spark_type()}" for name, inner in self.columns()) + ">"
        if self.kind == "array":
            assert self.element is not None  # has_column
            return f"ARRAY<{self.element.spark_type()}>"
        return _SPARK_TYPES[self.kind]

    def arrow_type(self) -> str:
        """As Spark DDL of what the decoder yields: VARIANT travels as the JSON text that Spark then parses."""
        return self.spark_type().replace("VARIANT", "STRING") if self.kind == "variant" else _textual(self)

    @property
    def holds_variant(self) -> bool:
        if self.kind == "variant":
            return True
        inner = [*self.fields.values(), *([self.element] if self.element else [])]
        return any(shape.holds_variant for shape in inner)

    def to_json(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"kind": self.kind}
        if self.kind == "decimal":
            stored["scale"] = self.scale
        if self.kind == "struct":
            stored["fields"] = {name: inner.to_json() for name, inner in self.fields.items()}
        if self.kind == "array" and self.element is not None:
            stored["element"] = self.element.to_json()
        return stored

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Shape:
        return Shape(
            stored["kind"],
            stored.get("scale", 0),
            {name: Shape.from_json(inner) for name, inner in stored.get("fields", {}).items()},
            Shape.from_json(stored["element"]) if "element" in stored else None,
        )


def _textual(shape: Shape) -> str:
    if shape.kind == "struct":
        return "STRUCT<" + ", ".join(f"{quoted(name)}: {inner.arrow_type()}" for name, inner in shape.columns()) + ">"
    if shape.kind == "array":
        assert shape.element is not None  # has_column
        return f"ARRAY<{shape.element.arrow_type()}>"
    return shape.spark_type()
