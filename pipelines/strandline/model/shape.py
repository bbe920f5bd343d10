"""Shape of a silver table: a tree of BSON kinds.

    null        only nulls, empty arrays and empty documents so far; no column yet
    int long double decimal string objectId bool date binary uuid     scalars
    json        canonical Extended JSON as STRING (an `_id` of mixed types)
    variant     canonical Extended JSON as VARIANT (mixed or rare types, or too deep)
    struct      a document, by field name
    array       of one element shape
    whole       the whole document as one VARIANT column
    whole_json  the whole document as one STRING column of canonical Extended JSON

Pure. The shape is stored in the table's properties, so that RESTORE restores it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from strandline.model.bson.decimal_digits import PRECISION
from strandline.model.delta_names import DELTA_NAMES
from strandline.model.table_schemas import BOOKKEEPING, HISTORY_ACTION, HISTORY_BOOKKEEPING
from strandline.model.tables import quoted

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
    "whole": "VARIANT",
    "whole_json": "STRING",
}
_PORTABLE = {"int": "long", "variant": "json", "whole": "whole_json"}

SchemaMode = Literal["infer", "declared", "variant"]
"""Source of the columns. ``infer``: values and declaration. ``declared``: declaration only. ``variant``: one column."""

Compatibility = Literal["portable", "native"]
"""Delta features of a silver table. ``portable``: none that a reader must know. ``native``: VARIANT, type widening,
deletion vectors and column mapping."""

NameAdjustment = Literal["none", "avro", "avro_unicode"]
"""Conversion of field names to column names."""

DECLARABLE = frozenset(_SPARK_TYPES) - {"whole", "whole_json"}
"""Type names allowed in ``silver.columns``, besides ``decimal(2)``."""

_NOT_IN_PARQUET = frozenset(" ,;{}()\n\t=")  # DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES
_DECIMAL = re.compile(r"decimal\((\d{1,2})\)")
_RESERVED = {*BOOKKEEPING, *HISTORY_BOOKKEEPING, HISTORY_ACTION, *DELTA_NAMES}  # none has a capital letter


@dataclass
class Shape:
    """Node of the tree. *scale*: of ``decimal``. *fields* (by column name): of ``struct``. *element*: of ``array``."""

    kind: str = "null"
    scale: int = 0
    fields: dict[str, Shape] = field(default_factory=dict)
    element: Shape | None = None
    source: str | None = None
    """Name of the field, if the column has another name."""
    pattern: str | None = None
    """Pattern of a tenant table, if the column shows a group of it."""
    left_out: bool = field(default=False, compare=False)
    """True: the table has no such column, though the type is known (``keep: false`` of a child table)."""

    @property
    def has_column(self) -> bool:
        """True if the node has a type.

        A struct without typed fields and an array without a typed element have no column yet.
        """
        if self.kind == "struct":
            return any(inner.has_column for inner in self.fields.values())
        if self.kind == "array":
            return self.element is not None and self.element.has_column
        return self.kind != "null"

    @property
    def is_kept(self) -> bool:
        """True if the table has a column for the node: it has a type, and is not left out."""
        if self.kind == "struct":
            return any(inner.is_kept for inner in self.fields.values())
        if self.kind == "array":
            return self.element is not None and self.element.is_kept and not self.left_out
        return self.has_column

    @property
    def leaves(self) -> int:
        """Number of leaf columns (columns without inner columns), over all levels."""
        if self.kind == "struct":
            return sum(inner.leaves for inner in self.fields.values())
        if self.kind == "array":
            return 0 if self.element is None else self.element.leaves
        return int(self.kind != "null")

    def columns(self) -> Iterator[tuple[str, Shape]]:
        """Return the fields of a struct for which the table has a column, in order."""
        return ((name, inner) for name, inner in self.fields.items() if inner.is_kept)

    def whole(self) -> Shape:
        """Return the shape with the columns that are left out."""
        fields = {name: inner.whole() for name, inner in self.fields.items()}
        return replace(self, fields=fields, element=self.element and self.element.whole(), left_out=False)

    def along(self, path: Sequence[str]) -> Shape:
        """Return the shape of the node at *path* and of those above it. None of them is left out."""
        if self.kind == "array" and self.element is not None and path:
            return replace(self, element=self.element.along(path), left_out=False)
        inner = {path[0]: self.fields[path[0]].along(path[1:])} if path and path[0] in self.fields else self.fields
        return replace(self, fields=inner, left_out=False)

    def leaves_out(self, path: Sequence[str]) -> bool:
        """Return True if the node at *path*, or one above it, is left out."""
        if self.left_out or not path:
            return self.left_out
        if self.element is not None:
            return self.element.leaves_out(path)
        return path[0] in self.fields and self.fields[path[0]].leaves_out(path[1:])

    def field_name_of(self, column: str) -> str:
        """Return the name of the field behind a column of this struct."""
        return self.fields[column].source or column

    def spark_type(self) -> str:
        """Return the type as Spark DDL."""
        if self.kind == "decimal":
            return f"DECIMAL(38,{self.scale})"
        if self.kind == "struct":
            return (
                "STRUCT<" + ", ".join(f"{quoted(name)}: {inner.spark_type()}" for name, inner in self.columns()) + ">"
            )
        if self.kind == "array":
            assert self.element is not None  # has_column
            return f"ARRAY<{self.element.spark_type()}>"
        return _SPARK_TYPES[self.kind]

    def arrow_type(self) -> str:
        """Return the type that the decoder returns, as Spark DDL. VARIANT is sent as JSON text, which Spark parses."""
        return "STRING" if self.is_variant else _textual(self)

    @property
    def is_variant(self) -> bool:
        return self.kind in ("variant", "whole")

    @property
    def is_whole(self) -> bool:
        """True for the column that holds the whole document."""
        return self.kind in ("whole", "whole_json")

    def as_in(self, compatibility: Compatibility) -> Shape:
        """Return the shape for a table of this *compatibility*.

        A portable table has neither VARIANT nor INT: Delta's readers of version 1 know no VARIANT, and an INT column
        could not be widened later.
        """
        if compatibility == "native":
            return self
        return replace(
            self,
            kind=_PORTABLE.get(self.kind, self.kind),
            fields={name: inner.as_in(compatibility) for name, inner in self.fields.items()},
            element=None if self.element is None else self.element.as_in(compatibility),
        )

    @property
    def holds_variant(self) -> bool:
        if self.is_variant:
            return True
        inner = [*self.fields.values(), *([self.element] if self.element else [])]
        return any(shape.holds_variant for shape in inner)

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"kind": self.kind}
        if self.kind == "decimal":
            content["scale"] = self.scale
        if self.kind == "struct":
            content["fields"] = {name: inner.to_json() for name, inner in self.fields.items()}
        if self.kind == "array" and self.element is not None:
            content["element"] = self.element.to_json()
        if self.source is not None:
            content["source"] = self.source
        if self.pattern is not None:
            content["pattern"] = self.pattern
        if self.left_out:
            content["left_out"] = True
        return content

    @staticmethod
    def from_json(content: dict[str, Any]) -> Shape:
        return Shape(
            content["kind"],
            content.get("scale", 0),
            {name: Shape.from_json(inner) for name, inner in content.get("fields", {}).items()},
            Shape.from_json(content["element"]) if "element" in content else None,
            content.get("source"),
            content.get("pattern"),
            content.get("left_out", False),
        )


def declared_columns(declarations: Mapping[str, Any]) -> dict[str, Shape]:
    """Parse the declared columns of one collection, by name.

    A type is a word such as ``long`` or ``decimal(2)``, a list of one type for an array, or a mapping for a document.

    Raises:
        ValueError: The declaration is invalid. The message names the path and the problem.
    """
    folded = [fold_case(name) for name in declarations]
    twins = [name for name in declarations if folded.count(fold_case(name)) > 1]
    if twins:
        raise ValueError(f"{' and '.join(twins)} differ in case alone")
    return _declared_fields(declarations, ())


def _declared_fields(declarations: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Shape]:
    for name in declarations:
        if not can_be_column(name, top=not path):
            raise ValueError(f"{'.'.join((*path, name))} cannot be a column")
    return {name: _declared(inner, (*path, name)) for name, inner in declarations.items()}


def _declared(value: Any, path: tuple[str, ...]) -> Shape:
    if isinstance(value, Mapping) and value:
        return Shape("struct", fields=_declared_fields({str(name): inner for name, inner in value.items()}, path))
    if isinstance(value, list) and len(value) == 1:
        return Shape("array", element=_declared(value[0], path))
    if isinstance(value, str) and (scaled := _DECIMAL.fullmatch(value)) is not None and int(scaled[1]) <= PRECISION:
        return Shape("decimal", scale=int(scaled[1]))
    if isinstance(value, str) and value in DECLARABLE:
        return Shape(value)
    raise ValueError(
        f"{'.'.join(path)} is no type: {', '.join(sorted(DECLARABLE))}, decimal(0 to {PRECISION}), [type], or "
        "field: type"
    )


def fold_case(name: str) -> str:
    """Fold *name* as Spark does: equal results mean one column (``µ`` and ``μ``, ``ı`` and ``i``).

    Follows Java's case rules.
    """
    upper = (letter.upper() if len(letter.upper()) == 1 else letter for letter in name)
    return "".join(letter.lower()[0] for letter in upper)


def adjusted(name: str, mode: NameAdjustment) -> str:
    """Convert a field name to a column name, as Debezium's ``field.name.adjustment.mode`` does.

    With ``avro_unicode``, different field names always get different column names.
    """
    if mode == "none":
        return name
    escapes = mode == "avro_unicode"
    legal = (
        character.isascii()
        and (character.isalpha() or (character == "_" and not escapes) or (character.isdigit() and at > 0))
        for at, character in enumerate(name)
    )
    return "".join(
        character if fits else "".join(f"_u{unit:04x}" for unit in _utf16(character)) if escapes else "_"
        for character, fits in zip(name, legal, strict=True)
    )


def _utf16(character: str) -> tuple[int, ...]:
    """Return the UTF-16 code units, as Java counts characters."""
    raw = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(raw[at : at + 2]) for at in range(0, len(raw), 2))


def is_reserved(name: str) -> bool:
    """Return True if a top-level field *name* would collide with a column of Strandline or Delta."""
    return fold_case(name) in _RESERVED


def is_delta_name(name: str) -> bool:
    """Return True if Delta or Spark uses the column name *name* itself."""
    return fold_case(name) in DELTA_NAMES


def can_be_column(name: str, *, top: bool) -> bool:
    """Return True if a field name is a valid column name."""
    # The change data feed of a MERGE cannot quote a back-tick. Spark substitutes a variable for ${x}.
    printable = (
        name != "" and len(name) <= 255 and all(character >= " " and character not in "\x7f`" for character in name)
    )
    return printable and "${" not in name and not (top and is_reserved(name))


def needs_mapping(column: str) -> bool:
    """Return True if Delta accepts the column's name only with column mapping, because Parquet cannot hold it."""
    return any(character in _NOT_IN_PARQUET for character in column)


def _textual(shape: Shape) -> str:
    if shape.kind == "struct":
        return "STRUCT<" + ", ".join(f"{quoted(name)}: {inner.arrow_type()}" for name, inner in shape.columns()) + ">"
    if shape.kind == "array":
        assert shape.element is not None  # has_column
        return f"ARRAY<{shape.element.arrow_type()}>"
    return shape.spark_type()
