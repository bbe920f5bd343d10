"""Schema evolution: derive a silver table's next shape from a census.

Columns only widen, and no digit is lost. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from strandline.model.bson.decimal_digits import PRECISION
from strandline.model.shape import (
    Compatibility,
    NameAdjustment,
    SchemaMode,
    Shape,
    adjusted,
    can_be_column,
    fold_case,
    is_reserved,
)
from strandline.silver.schema.census import NO_DECIMAL, Census
from strandline.silver.schema.column_limit import bounded

_LONG_DIGITS = 19
_INT_DIGITS = 10

WHOLE: Final = "document"
"""Name of the only column besides ``_id`` in schema mode ``variant``."""

# Type changes that Delta can make in place. Any other value that does not fit is rescued until a rebuild.
_WIDENINGS = {("int", "long"), ("int", "double")}


@dataclass(frozen=True)
class SchemaChange:
    """One added (*before* is empty) or widened column.

    *path* includes the structs and array elements above the column.
    """

    path: tuple[str, ...]
    before: str
    after: str
    is_kept: bool = True
    """False: the column is left out of the table. The shape alone has it."""


@dataclass(frozen=True)
class ColumnLimits:
    """Limits of a table's columns. A subtree beyond them becomes one VARIANT column."""

    max_columns: int = 500
    """Maximum leaf columns of the whole table."""
    max_depth: int = 8
    """Maximum nesting of columns."""
    names: NameAdjustment = "none"
    """Rule that turns a field's name into a column's name. `_id` is never changed."""
    compatibility: Compatibility = "native"
    """Compatibility of the table. A portable table has no VARIANT and no INT column, and no column is ever widened."""

    def column(self, name: str, path: tuple[str, ...]) -> str:
        """Return the column's name for a field below *path*."""
        return name if not path and name == "_id" else adjusted(name, self.names)


@dataclass(frozen=True)
class ColumnPlan:
    """Columns of a collection that the configuration decides, instead of the census."""

    mode: SchemaMode = "infer"
    declared: Mapping[str, Shape] = field(default_factory=dict)
    groups: Mapping[str, Shape] = field(default_factory=dict)
    """Columns of a tenant table's groups. A field with the name of one is rescued."""
    arrays: frozenset[tuple[str, ...]] = frozenset()
    """Paths at which a new column is an array, if one document has an array there. Other values are rescued."""
    left_out: frozenset[tuple[str, ...]] = frozenset()
    """Paths of *arrays* that get no column. A column that the table has stays until a rebuild, and so does its lack."""

    def is_inferred(self, name: str) -> bool:
        """Return True if the field's column type is inferred from its values.

        Mode ``declared`` without declarations infers all.
        """
        return name not in self.declared and (
            name == "_id" or self.mode == "infer" or (self.mode == "declared" and not self.declared)
        )

    def columns(self, compatibility: Compatibility) -> dict[str, Shape]:
        """Return the columns that exist regardless of the census, for a table of this *compatibility*."""
        columns = {**self.groups, **self.declared, **({WHOLE: Shape("whole")} if self.mode == "variant" else {})}
        return {name: shape.as_in(compatibility) for name, shape in columns.items()}


def evolve(
    shape: Shape, census: Census, limits: ColumnLimits, plan: ColumnPlan = ColumnPlan()
) -> tuple[Shape, list[SchemaChange]]:
    """Return the table's next shape and the schema changes that lead to it, in the order in which to apply them.

    Args:
        shape: Current root of the table; an empty struct for a new table.
        census: Census of the root.
        limits: Limits of the columns.
        plan: Configured columns. They get the configured type; values that do not fit are rescued.

    Returns:
        New root, or *shape* itself if nothing changes. Fields that cannot be a column are left out, and the decoder
        rescues their values: a reserved name, a name that differs from a column only in case, an illegal name, or a
        field above the column limit.

    Raises:
        ValueError: A column has another type than *plan* says and cannot be widened to that type.
    """
    for path in plan.arrays:
        census = census.along(path, lambda name: adjusted(name, limits.names)) or census
    left = {name: inner for name, inner in census.fields.items() if plan.is_inferred(name)}
    root = _evolve_struct(shape, {"_id": left.pop("_id")} if "_id" in left else {}, (), limits)
    root = _evolve_struct(_planned(root, plan, limits.compatibility), left, (), limits)
    root = bounded(_planned(shape, plan, limits.compatibility), root, limits.max_columns).as_in(limits.compatibility)
    root = _with_left_out(shape, root, plan.left_out)
    return (root, list(_changes(shape, root, ()))) if root != shape else (shape, [])


def _with_left_out(before: Shape, after: Shape, paths: Collection[tuple[str, ...]]) -> Shape:
    """Return *after* without the columns that *before* leaves out, and without those of new arrays at *paths*."""
    fields = {
        name: _with_left_out(before.fields.get(name, Shape()), inner, [path[1:] for path in paths if name in path[:1]])
        for name, inner in after.fields.items()
    }
    below = [path for path in paths if path]
    element = after.element and _with_left_out(before.element or Shape(), after.element, below)
    left_out = before.left_out if before.has_column else after.kind == "array" and () in paths
    return replace(after, fields=fields, element=element, left_out=left_out)


def _changes(before: Shape, after: Shape, path: tuple[str, ...], *, is_kept: bool = True) -> Iterator[SchemaChange]:
    is_kept &= not after.left_out
    if path and (not before.has_column or (after.is_kept and not before.is_kept)):
        if after.has_column:
            is_kept &= after.is_kept
            yield SchemaChange(path, "", (after if is_kept else after.whole()).spark_type(), is_kept)
    elif before.kind == after.kind == "struct":
        for name, inner in after.fields.items():
            yield from _changes(before.fields.get(name, Shape()), inner, (*path, name), is_kept=is_kept)
    elif before.kind == after.kind == "array" and before.element is not None and after.element is not None:
        yield from _changes(before.element, after.element, (*path, "element"), is_kept=is_kept)
    elif before.spark_type() != after.spark_type():
        yield SchemaChange(path, before.spark_type(), after.spark_type(), is_kept)


def _planned(shape: Shape, plan: ColumnPlan, compatibility: Compatibility) -> Shape:
    if (plan.mode == "variant") != any(inner.is_whole for inner in shape.fields.values()) and set(shape.fields) - {
        "_id"
    }:
        raise ValueError("the table was made in another silver.schema_mode")
    fields = dict(shape.fields)
    names = {fold_case(name): name for name, inner in fields.items() if inner.has_column}
    columns = {shape.field_name_of(name): name for name in fields}
    for name, planned in plan.columns(compatibility).items():
        if columns.get(name, name) != name:
            raise ValueError(f"column {columns[name]} holds the field {name}, and silver.columns wants a column {name}")
        column = names.get(fold_case(name))
        if column is not None and (
            column != name or (fields[name] != planned and _widened(fields[name], planned.kind) != planned)
        ):
            raise ValueError(
                f"column {column} is {fields[column].spark_type()}, "
                f"and silver.columns says {name} {planned.spark_type()}"
            )
        fields[name] = planned
    return Shape("struct", fields=fields)


def _evolve_struct(
    shape: Shape, census_by_field: Mapping[str, Census], path: tuple[str, ...], limits: ColumnLimits
) -> Shape:
    fields = dict(shape.fields)
    taken = {fold_case(name) for name in fields}
    columns = {shape.field_name_of(name): name for name in fields}
    for field_name, census in census_by_field.items():
        name = columns.get(field_name) or limits.column(field_name, path)
        column = fields.get(name) if field_name in columns else None
        if column is None and (not can_be_column(name, top=not path) or fold_case(name) in taken):
            continue
        evolved = _evolve(column or Shape(), census, (*path, name), limits)
        if column is None and evolved.kind == "null":
            continue  # nothing but nulls so far
        fields[name] = replace(evolved, source=None if name == field_name else field_name)
        taken.add(fold_case(name))
    return Shape("struct", fields=fields)


def with_columns_of(shape: Shape, other: Shape) -> tuple[Shape, list[SchemaChange]]:
    """Return *shape* with all columns of *other* added. Its own columns are widened to those of *other* where possible.

    A column of *other* is left out if *shape* has it in another spelling (``orderid``, ``orderId``): the two cannot be
    columns of one table.

    Args:
        shape: Root of the table to align. Columns that only *shape* has stay.
        other: Root of another table. Its bookkeeping columns are ignored.

    Returns:
        New root, and the schema changes that lead to it.
    """
    root = _with_columns_of(
        shape, Shape("struct", fields={name: inner for name, inner in other.fields.items() if not is_reserved(name)})
    )
    return root, list(_changes(shape, root, ()))


def _with_columns_of(shape: Shape, other: Shape, *, is_root: bool = True) -> Shape:
    if not is_root and not shape.has_column:
        return other
    if shape.kind == other.kind == "struct":
        spelled = {fold_case(name): name for name in shape.fields}
        fields = {
            name: replace(_with_columns_of(shape.fields.get(name, Shape()), inner, is_root=False), source=inner.source)
            for name, inner in other.fields.items()
            if spelled.get(fold_case(name), name) == name
        }
        return Shape("struct", fields=shape.fields | fields)
    if shape.kind == other.kind == "array" and shape.element is not None and other.element is not None:
        return replace(shape, element=_with_columns_of(shape.element, other.element, is_root=False))
    return _widened(shape, other.kind)


def _widened(shape: Shape, kind: str) -> Shape:
    return Shape(kind) if (shape.kind, kind) in _WIDENINGS else shape


def _evolve(shape: Shape, census: Census, path: tuple[str, ...], limits: ColumnLimits) -> Shape:
    # An empty document or array has no column yet: its type may still change freely.
    if shape.kind == "null" or (census.types and not shape.has_column):
        return infer(census, limits, is_id=path == ("_id",))
    if shape.kind == "struct" and census.fields:
        return _evolve_struct(shape, census.fields, path, limits)
    if shape.kind == "array" and census.element is not None:
        assert shape.element is not None  # has_column
        return Shape("array", element=_evolve(shape.element, census.element, (*path, "element"), limits))
    return _widened(shape, infer(census, limits).kind)


def infer(census: Census, limits: ColumnLimits, *, is_id: bool = False) -> Shape:
    """Return the narrowest shape that holds every counted value exactly.

    int and long give long. int and double give double, because every int is an exact double. Integers and decimals give
    DECIMAL(38, s) if all digits fit. Any other mix, such as string and double, gives VARIANT. An `_id` of mixed types
    becomes canonical Extended JSON, because a VARIANT cannot be joined on.

    long and double give VARIANT in a native table. In a portable table they give double, and the decoder rescues a long
    that is no exact double.

    A Decimal128 that no DECIMAL can hold (`NO_DECIMAL`) decides nothing among numbers: the decoder rescues it. A field
    that has held only such values has no column yet.
    """
    types = census.types
    if types <= {"int", "long", "decimal", NO_DECIMAL}:
        types = types - {NO_DECIMAL}
    if not types:
        return Shape()
    if types == {"struct"}:
        return _evolve_struct(Shape("struct"), census.fields, ("",), limits)
    if types == {"array"}:
        return Shape("array", element=infer(census.element or Census(), limits))
    if len(types) == 1 and (only := next(iter(types))) in _SCALARS:
        return Shape(only)
    if types == {"int", "long"}:
        return Shape("long")
    if types == {"int", "double"}:
        return Shape("double")
    if limits.compatibility == "portable" and "double" in types and types <= {"int", "long", "double"}:
        return Shape("double")
    if "decimal" in types and types <= {"int", "long", "decimal"}:
        whole = max(census.integer_digits, _LONG_DIGITS if "long" in types else 0, _INT_DIGITS if "int" in types else 0)
        for scale in (census.written_scale, census.exact_scale):  # 0E-6176 asks for more digits than it needs
            if whole + scale <= PRECISION:
                return Shape("decimal", scale=scale)
    return Shape("json" if is_id else "variant")


_SCALARS = {"int", "long", "double", "string", "objectId", "bool", "date", "binary", "uuid"}
