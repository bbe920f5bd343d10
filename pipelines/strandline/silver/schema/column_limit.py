"""Limit on a table's leaf columns.

Above it, new documents become VARIANT columns, starting with maps whose keys are data. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from strandline.model.shape import Shape

_MAP_KEYS: Final = 16
"""Minimum fields of a document that may be a map."""
_NUMBERS: Final = frozenset({"int", "long", "double", "decimal"})
_Path = tuple[str, ...]
_ID: Final = ("_id",)


def bounded(present: Shape, target: Shape, max_leaves: int) -> Shape:
    """Return *target* with at most *max_leaves* leaf columns.

    Columns of *present* are never changed, even above the limit.

    New documents become VARIANT columns until the rest fits: first maps, largest first; then other documents, deepest
    first. If that is not enough, new fields are left out: first fields of maps, then the deepest fields. The order in
    which fields were found does not matter. `_id` is never left out. It becomes JSON instead of VARIANT, after all
    others.

    Args:
        present: Current root of the table.
        target: New root without the limit.
        max_leaves: Maximum leaf columns.
    """
    excess = target.leaves - max_leaves
    if excess <= 0:
        return target
    chosen: set[_Path] = set()
    saved: Counter[_Path] = Counter()  # leaves saved by chosen documents below each path
    for document in sorted(_new_documents(present, target, ()), key=_Document.order):
        saving = document.leaves - saved[document.path] - 1
        if excess <= 0:
            break
        if saving > 0 and not any(above in chosen for above in _above(document.path)):
            chosen.add(document.path)
            saved.update(dict.fromkeys(_above(document.path), saving))
            excess -= saving
    return _without(target, (), chosen, _left_out(present, target, excess))


@dataclass(frozen=True)
class _Document:
    """A document (struct) that is new to the table."""

    path: _Path
    leaves: int
    is_map: bool

    def order(self) -> tuple[bool, bool, int, int, _Path]:
        depth = 0 if self.is_map else -len(self.path)
        return self.path == _ID, not self.is_map, depth, -self.leaves, self.path


def _new_documents(present: Shape | None, target: Shape, path: _Path) -> Iterator[_Document]:
    is_new = present is None or (not present.has_column and path != ())
    if target.kind == "struct":
        if is_new:
            yield _Document(path, target.leaves, is_map(target))
        if path != _ID:
            for name, inner in target.fields.items():
                yield from _new_documents(
                    None if is_new or present is None else present.fields.get(name), inner, (*path, name)
                )
    elif target.kind == "array" and target.element is not None and path != _ID:
        yield from _new_documents(
            None if is_new or present is None else present.element, target.element, (*path, "element")
        )


def is_map(shape: Shape) -> bool:
    """Return True if the field names of a document look like data: many fields whose values have the same type."""
    values = [inner for inner in shape.fields.values() if inner.kind != "null"]
    kinds = {"number" if inner.kind in _NUMBERS else inner.kind for inner in values}
    if shape.kind != "struct" or len(values) < _MAP_KEYS or len(kinds) != 1:
        return False
    names = Counter(name for inner in values for name in inner.fields)
    return kinds != {"struct"} or names.total() >= 2 * len(names)


def _left_out(present: Shape, target: Shape, excess: int) -> set[_Path]:
    """Return the new fields to leave out, for the leaves above the limit that VARIANT columns did not save."""
    if excess <= 0:
        return set()
    candidates = [(in_map, len(path), path) for path, in_map in _new_fields(present, target, ()) if path != _ID]
    return {path for _, _, path in sorted(candidates)[-excess:]}


def _new_fields(present: Shape, target: Shape, path: _Path) -> Iterator[tuple[_Path, bool]]:
    """Yield the path of each field that existing documents would get, and whether its document is a map."""
    if target.kind == "array" and present.element is not None and target.element is not None:
        yield from _new_fields(present.element, target.element, (*path, "element"))
    for name, inner in target.fields.items():
        column = present.fields.get(name)
        if column is not None and column.has_column:
            yield from _new_fields(column, inner, (*path, name))
        elif inner.has_column:
            yield (*path, name), path != () and is_map(target)


def _without(shape: Shape, path: _Path, chosen: set[_Path], left_out: set[_Path]) -> Shape:
    if path in chosen:
        return Shape("json" if path == _ID else "variant", source=shape.source)
    if shape.kind == "array" and shape.element is not None:
        return replace(shape, element=_without(shape.element, (*path, "element"), chosen, left_out))
    if shape.kind != "struct":
        return shape
    fields = {name: inner for name, inner in shape.fields.items() if (*path, name) not in left_out}
    return replace(
        shape, fields={name: _without(inner, (*path, name), chosen, left_out) for name, inner in fields.items()}
    )


def _above(path: Sequence[str]) -> Iterator[_Path]:
    return (tuple(path[:length]) for length in range(len(path)))
