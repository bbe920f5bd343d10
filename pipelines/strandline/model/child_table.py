"""Child tables of silver: one row for each element of an array of the documents. Pure.

A child table is a function of its parent's rows (decision 90). Its rows have the parent's ``_key``, the place of the
element, the element's columns, and of the parent's newest change that changed the element, the position and the time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.model.merge_rule import MergeRule
from strandline.model.shape import Compatibility, Shape, fold_case, is_reserved
from strandline.model.tables import TableName, quoted

VALUE: Final = "value"
"""Column of an element that is no document."""
ORDINAL: Final = "_ordinal"
OUTER_ORDINAL: Final = "_outer_ordinal"
OCCURRENCE: Final = "_occurrence"
OF_PARENT: Final = ("_position", "_deleted", "_cluster_time")
"""Columns that an element has from its parent, beside ``_key``."""
OF_VERSION: Final = ("_position", "_valid_to_position", "_valid_from", "_valid_to")
"""Columns that a version of an element has from its parent, the history of the documents."""
GONE: Final = "_strandline_gone"
"""Column of the MERGE's source: true if the array no longer has the element."""
DDL: Final = {
    "_key": "STRING COMMENT 'MERGE key of the parent row'",
    ORDINAL: "INT COMMENT 'place of the element in its array; 0: the first'",
    OUTER_ORDINAL: "INT COMMENT 'only of an array in an array: place of the outer element'",
    OCCURRENCE: "INT COMMENT 'only with a key: number of earlier elements of the array with the same key'",
    "_position": "STRING COMMENT 'position of the change of the parent that last changed the element'",
    "_deleted": "BOOLEAN COMMENT 'true: the parent is a tombstone'",
    "_cluster_time": "TIMESTAMP COMMENT 'cluster time of _position'",
}
HISTORY_DDL: Final = {
    **{name: DDL[name] for name in ("_key", ORDINAL, OUTER_ORDINAL, OCCURRENCE)},
    "_position": "STRING COMMENT 'position of the change of the parent that gave the element these values'",
    "_valid_to_position": "STRING COMMENT 'position of the change that ended this version; null: current version'",
    "_valid_from": "TIMESTAMP COMMENT 'cluster time of _position'",
    "_valid_to": "TIMESTAMP COMMENT 'cluster time of _valid_to_position; null: current version'",
}
_KEY_KINDS: Final = ("int", "long", "decimal", "string", "objectId", "uuid", "bool", "date", "binary")
"""Kinds of values that are equal in Spark if and only if they are equal in delta-rs."""


@dataclass(frozen=True)
class Child:
    """A child table as the settings name it.

    Args:
        path: Columns that lead to the array: ``("shipping", "parcels")``. One of them may be an array itself.
        key: Field that identifies an element in its array. None: its place does.
        keep: False: a new parent table leaves the array's column out.
    """

    path: tuple[str, ...]
    table: TableName
    key: str | None
    keep: bool = True


@dataclass(frozen=True)
class Elements:
    """Columns of a child table.

    Args:
        key: Column of the child's key. None: the place identifies an element.
        fields: Field of the element by column. None: the element itself.
        outer: Path of the array that holds the array. Empty: no array does.
        in_documents: Shape that reads the array from the parent's documents. None: the parent has the column.
        are_versions: True: the table is the history of a child table. Its rows are versions of elements.
    """

    path: tuple[str, ...]
    key: str | None
    fields: Mapping[str, str | None]
    types: Mapping[str, Shape]
    outer: tuple[str, ...] = ()
    in_documents: Shape | None = None
    are_versions: bool = False

    @staticmethod
    def of(shape: Shape, child: Child, compatibility: Compatibility, *, are_versions: bool = False) -> Elements | None:
        """Return the columns of a *child* of a table with this *shape*.

        None: no document had an element with a value, or with the key, so far.

        Raises:
            ValueError: The path leads to no array, or the key cannot identify elements. The message says why.
        """
        whole = shape.along(child.path)
        element, outer = _element(whole, child.path)
        if element is None:
            return None
        source = whole.as_in(compatibility) if shape.leaves_out(child.path) else None
        element, fields = element.as_in(compatibility), dict[str, str | None]({VALUE: None})
        types = {VALUE: element}
        if element.kind == "struct":
            inner = dict(element.columns())
            fields = {_column(name, inner): name for name in inner}
            types = {column: inner[name or ""] for column, name in fields.items()}
        if child.key is None:
            return Elements(child.path, None, fields, types, outer, source, are_versions)
        key = next((column for column, name in fields.items() if name == child.key), None)
        if key is None:
            if element.kind != "struct":
                raise ValueError(f"its elements are {element.spark_type()}, and have no field {child.key}")
            return None
        if (kind := types[key].kind) not in _KEY_KINDS:
            raise ValueError(f"its key {child.key} is {types[key].spark_type()} ({kind}), which identifies no element")
        return Elements(child.path, key, fields, types, outer, source, are_versions)

    @property
    def array(self) -> tuple[str, ...]:
        """Columns that identify an array."""
        return ("_key", OUTER_ORDINAL) if self.outer else ("_key",)

    @property
    def of_element(self) -> tuple[str, ...]:
        """Columns that identify an element. A key that is repeated, or null, is told apart by its occurrence."""
        return (*self.array, ORDINAL) if self.key is None else (*self.array, self.key, OCCURRENCE)

    @property
    def identity(self) -> tuple[str, ...]:
        """Columns that identify a row."""
        return (*self.of_element, "_position") if self.are_versions else self.of_element

    @property
    def values(self) -> tuple[str, ...]:
        """Columns whose change makes a new version of an element."""
        return tuple(name for name in (ORDINAL, *self.fields) if name not in self.of_element)

    @property
    def holds_variant(self) -> bool:
        """True if a column is VARIANT, which cannot be compared."""
        return any(shape.holds_variant for shape in self.types.values())

    @property
    def compared(self) -> list[str]:
        """Columns whose change writes the row anew."""
        if self.holds_variant:
            return [] if self.are_versions else ["_position"]
        return [name for name in self.columns if name not in (*self.identity, "_position", "_cluster_time")]

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns that an element has from its parent, beside ``_key``."""
        return OF_VERSION if self.are_versions else OF_PARENT

    @property
    def of_parent(self) -> tuple[str, ...]:
        """Columns of the parent from which the rows are made."""
        column = self.path[0] if self.in_documents is None else "_document"
        return tuple(dict.fromkeys(("_key", *self.carried, column)))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in order."""
        return (*self.array, ORDINAL, *(() if self.key is None else (OCCURRENCE,)), *self.fields, *self.carried)

    @property
    def ddl(self) -> str:
        """The columns as DDL."""
        own = HISTORY_DDL if self.are_versions else DDL
        kinds = {name: own.get(name) or self.types[name].spark_type() for name in self.columns}
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())

    @property
    def definition(self) -> str:
        """Text that is the same for two child tables whose rows mean the same."""
        columns = hashlib.sha256(self.ddl.encode()).hexdigest()[:16]
        return json.dumps({"path": ".".join(self.path), "key": self.key, "columns": columns})

    def rule(self) -> MergeRule:
        """Return the rule of a MERGE that gives some parents the elements that they have now.

        An element that stays as it was is not written. VARIANT cannot be compared: with such a column, a change of the
        parent writes all its elements.
        """
        rule = MergeRule(self.identity).delete(when=f"s.{GONE}").update(self.columns, differing=self.compared)
        return rule.insert(self.columns, when=f"NOT s.{GONE}")


def _element(shape: Shape, path: tuple[str, ...]) -> tuple[Shape | None, tuple[str, ...]]:
    """Return the shape of the elements, and the path of the outer array.

    None: the column does not exist, or had no values so far.
    """
    outer: tuple[str, ...] = ()
    for depth, name in enumerate(path, 1):
        place, is_last = ".".join(path[:depth]), depth == len(path)
        inner = shape.fields.get(name)
        if inner is None or not inner.has_column:
            return None, outer
        if inner.kind == "array" and not is_last and inner.element is not None:
            if outer:
                raise ValueError(f"{place} is the second array on the path, after {'.'.join(outer)}")
            outer, place, inner = path[:depth], f"an element of {place}", inner.element
        elif is_last and inner.kind != "array":
            raise ValueError(f"{place} is {inner.spark_type()}, and no array")
        if not is_last and inner.kind != "struct":
            raise ValueError(f"{place} is {inner.spark_type()}, and no document")
        shape = inner
    return shape.element, outer


def _column(field: str, fields: Mapping[str, Shape]) -> str:
    """Return the column of a field. A name that the table or Delta uses itself gets ``element`` before it."""
    others = {fold_case(name) for name in fields if name != field}
    while is_reserved(field) or fold_case(field) in (ORDINAL, OUTER_ORDINAL, OCCURRENCE, *others):
        field = f"element{'' if field.startswith('_') else '_'}{field}"
    return field
