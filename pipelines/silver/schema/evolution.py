"""How a silver table's shape follows its census: it widens by itself, never loses a digit, and never stops the table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pipelines.model.shape import NameAdjustment, SchemaMode, Shape, adjusted, can_be_column, caseless, is_reserved
from pipelines.silver.schema.census import Census
from pipelines.silver.schema.column_limit import bounded

_DECIMAL_DIGITS = 38
_LONG_DIGITS = 19
_INT_DIGITS = 10

WHOLE: Final = "document"
"""The one column beside ``_id`` in mode ``variant``."""

# What Delta widens in place. Everything else that does not fit is rescued until a rebuild re-types the column.
_WIDENINGS = {("int", "long"), ("int", "double")}


@dataclass(frozen=True)
class SchemaChange:
    """One column that was added (*before* is empty) or widened. *path* names structs and array elements down to it."""

    path: tuple[str, ...]
    before: str
    after: str


@dataclass(frozen=True)
class Guards:
    """What a column may be: past these a subtree is one VARIANT column."""

    max_columns: int = 500
    """Leaf columns of the whole table."""
    max_depth: int = 8
    names: NameAdjustment = "none"
    """How a field's name becomes a column's; `_id` stays."""

    def column(self, name: str, path: tuple[str, ...]) -> str:
        """The column's name of a field below *path*."""
        return name if not path and name == "_id" else adjusted(name, self.names)


@dataclass(frozen=True)
class ColumnPlan:
    """What of a collection is decided by a person, and not by what is met."""

    mode: SchemaMode = "infer"
    declared: Mapping[str, Shape] = field(default_factory=dict)

    def infers(self, name: str) -> bool:
        """Whether a field becomes a column as its values say. Where nothing is declared, mode ``declared`` has nothing to go by."""
        return name not in self.declared and (
            name == "_id" or self.mode == "infer" or (self.mode == "declared" and not self.declared)
        )

    @property
    def columns(self) -> Mapping[str, Shape]:
        """Those that are there whatever is met."""
        return {**self.declared, WHOLE: Shape("whole")} if self.mode == "variant" else self.declared


def evolve(
    shape: Shape, census: Census, guards: Guards, plan: ColumnPlan = ColumnPlan()
) -> tuple[Shape, list[SchemaChange]]:
    """The table's next shape, and the changes that lead there, in the order in which they can be applied.

    Args:
        shape: The table's root as it is; an empty struct for a new table.
        census: What was met at the root.
        plan: The columns that it names are as it says, whatever is met: what does not fit is rescued.

    Returns:
        A new root; *shape* itself when nothing changes. Fields that cannot be a column (a reserved name, a case twin, a name no
        table can hold, one too many) are left out: the decoder rescues their values.

    Raises:
        ValueError: A column is of another type than *plan* says, and cannot be widened to it.
    """
    left = {name: met for name, met in census.fields.items() if plan.infers(name)}
    root = _evolve_struct(shape, {"_id": left.pop("_id")} if "_id" in left else {}, (), guards)
    root = _evolve_struct(_planned(root, plan), left, (), guards)
    root = bounded(_planned(shape, plan), root, guards.max_columns)
    return (root, list(_changes(shape, root, ()))) if root != shape else (shape, [])


def _changes(before: Shape, after: Shape, path: tuple[str, ...]) -> Iterator[SchemaChange]:
    if path and not before.has_column:
        if after.has_column:
            yield SchemaChange(path, "", after.spark_type())
    elif before.kind == after.kind == "struct":
        for name, inner in after.fields.items():
            yield from _changes(before.fields.get(name, Shape()), inner, (*path, name))
    elif before.kind == after.kind == "array" and before.element is not None and after.element is not None:
        yield from _changes(before.element, after.element, (*path, "element"))
    elif before.spark_type() != after.spark_type():
        yield SchemaChange(path, before.spark_type(), after.spark_type())


def _planned(shape: Shape, plan: ColumnPlan) -> Shape:
    if (plan.mode == "variant") != any(inner.kind == "whole" for inner in shape.fields.values()) and set(
        shape.fields
    ) - {"_id"}:
        raise ValueError("the table was made in another silver.schema_mode")
    fields = dict(shape.fields)
    names = {caseless(name): name for name, inner in fields.items() if inner.has_column}
    for name, wanted in plan.columns.items():
        known = names.get(caseless(name))
        if known is not None and (
            known != name or (fields[name] != wanted and _widened(fields[name], wanted.kind) != wanted)
        ):
            raise ValueError(
                f"column {known} is {fields[known].spark_type()}, and silver.columns says {name} {wanted.spark_type()}"
            )
        fields[name] = wanted
    return Shape("struct", fields=fields)


def _evolve_struct(shape: Shape, found: Mapping[str, Census], path: tuple[str, ...], guards: Guards) -> Shape:
    fields = dict(shape.fields)
    taken = {caseless(name) for name in fields}
    columns = {shape.field_of(name): name for name in fields}
    for field_name, met in found.items():
        name = columns.get(field_name) or guards.column(field_name, path)
        known = fields.get(name) if field_name in columns else None
        if known is None and (not can_be_column(name, top=not path) or caseless(name) in taken):
            continue
        evolved = _evolve(known or Shape(), met, (*path, name), guards)
        if known is None and evolved.kind == "null":
            continue  # nothing but nulls so far
        fields[name] = replace(evolved, source=None if name == field_name else field_name)
        taken.add(caseless(name))
    return Shape("struct", fields=fields)


def followed(shape: Shape, other: Shape) -> tuple[Shape, list[SchemaChange]]:
    """*shape* with every column that *other* has, as wide as there where it can be widened; its own columns stay.

    Args:
        other: The root of a table whose bookkeeping columns may have other names.
    """
    root = _followed(
        shape, Shape("struct", fields={name: inner for name, inner in other.fields.items() if not is_reserved(name)})
    )
    return root, list(_changes(shape, root, ()))


def _followed(shape: Shape, other: Shape, *, is_root: bool = True) -> Shape:
    if not is_root and not shape.has_column:
        return other
    if shape.kind == other.kind == "struct":
        fields = {
            name: replace(_followed(shape.fields.get(name, Shape()), inner, is_root=False), source=inner.source)
            for name, inner in other.fields.items()
        }
        return Shape("struct", fields=shape.fields | fields)
    if shape.kind == other.kind == "array" and shape.element is not None and other.element is not None:
        return Shape("array", element=_followed(shape.element, other.element, is_root=False))
    return _widened(shape, other.kind)


def _widened(shape: Shape, kind: str) -> Shape:
    return Shape(kind) if (shape.kind, kind) in _WIDENINGS else shape


def _evolve(shape: Shape, met: Census, path: tuple[str, ...], guards: Guards) -> Shape:
    if shape.kind == "null" or (
        met.types and not shape.has_column
    ):  # an empty document or array tells nothing of what follows
        return infer(met, guards, is_id=path == ("_id",))
    if shape.kind == "struct" and met.fields:
        return _evolve_struct(shape, met.fields, path, guards)
    if shape.kind == "array" and met.element is not None:
        assert shape.element is not None  # has_column
        return Shape("array", element=_evolve(shape.element, met.element, (*path, "element"), guards))
    return _widened(shape, infer(met, guards).kind)


def infer(met: Census, guards: Guards, *, is_id: bool = False) -> Shape:
    """The narrowest shape that holds every value met, exactly.

    int → long; int → double (each int is a double); long and double together, or any other mix, are a VARIANT; whole numbers and
    decimals are DECIMAL(38,s) while all digits fit. An `_id` of mixed types is canonical Extended JSON, because a VARIANT cannot be
    joined on.
    """
    types = met.types
    if not types:
        return Shape()
    if types == {"struct"}:
        return _evolve_struct(Shape("struct"), met.fields, ("",), guards)
    if types == {"array"}:
        return Shape("array", element=infer(met.element or Census(), guards))
    if len(types) == 1 and (only := next(iter(types))) in _SCALARS:
        return Shape(only)
    if types == {"int", "long"}:
        return Shape("long")
    if types == {"int", "double"}:
        return Shape("double")
    if "decimal" in types and types <= {"int", "long", "decimal"}:
        whole = max(met.integer_digits, _LONG_DIGITS if "long" in types else 0, _INT_DIGITS if "int" in types else 0)
        if whole + met.scale <= _DECIMAL_DIGITS:
            return Shape("decimal", scale=met.scale)
    return Shape("json" if is_id else "variant")


_SCALARS = {"int", "long", "double", "string", "objectId", "bool", "date", "binary", "uuid"}
