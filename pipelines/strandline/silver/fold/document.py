"""Fold a change event's ``updateDescription`` onto the document before the event, as MongoDB did.

Pure; values are copied as bytes.

MongoDB's behaviour (tested on 6.0.5; read in its sources `document_diff_calculator` and
`change_stream_document_diff_parser`):

* An update is logged as a diff. For each document, the diff lists updated fields, then inserted fields, then removed
  fields, then changed subdocuments. ``updatedFields`` has the same order, so it shows the order of new fields in a
  document. For update operators, that order is lexicographic with numbers by value (``9, 10, b, q``). For pipelines, it
  is the order of the pipeline's result.
* Every part refers to the document before the update. No two parts of a diff refer to the same value. The exception is
  an array that is truncated and then extended. So the order is: truncate, remove, update.
* A field with a new value keeps its place; a new field goes to the end. A gap in an array is filled with nulls. A
  removed array element is set to null, so it is logged as an update. A subdocument created for a nested path is one
  value.
* The document's own ``_id`` stays the first field, whatever the event says. A pipeline whose result lacks ``_id`` is
  logged with ``_id`` among the removed fields. The type of ``_id`` may change (``1`` to ``1.0``).
* A pipeline may move a field to the end (``$replaceWith``, ``$project``). The event looks as if the field was updated.

Random updates test this against a server: tests/property/test_fold_histories.py.

Source: MongoDB manual, change events, update: "Path Disambiguation", "Array Updates".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.model.bson import raw as rb
from strandline.silver.fold.branch import Branch, CannotFold, array_index

__all__ = ["CannotFold", "Folded", "fold", "fold_with_certainty"]


_ID = b"_id"

Value = tuple[int, bytes]
Target = tuple[Branch, bytes]


class Folded(NamedTuple):
    """A document after a patch.

    Attributes:
        document: Raw BSON.
        order_is_certain: True if the fields certainly have the source's order. False if a pipeline may have moved a
            changed field to the end: its event equals that of a plain update. Names and values are right either way.
        paths_are_certain: True if every dotted path has only one reading. False if a nested field was updated and the
            event has no ``disambiguatedPaths`` (servers before 6.1, or no ``showExpandedEvents``): a pipeline that
            creates a top-level field with dots in its *name* sends the same event.
    """

    document: bytes
    order_is_certain: bool
    paths_are_certain: bool


def fold(base: bytes, description: bytes) -> bytes:
    """Return the document after an update.

    Args:
        base: Document before the update, as raw BSON. It must be exactly the document that the server changed.
        description: The event's ``updateDescription``, as raw BSON.

    Returns:
        Raw BSON, byte for byte as the server stored it. Two things are ambiguous in events (see `Folded`). The likely
        reading is used:

        * ``[{"$replaceWith": {"_id": 1, "b": "$b", "a": 5}}]`` on ``{_id, a, b}`` moves ``a`` to the end. Its event
          equals that of ``{"$set": {"a": 5}}``, so ``a`` is updated in place. A move is recognised after a new field of
          the same document. It is also recognised if the value did not change, except for an array (``$push`` with
          ``$sort`` logs it again) and for the value of a removed field (``$rename``).
        * ``{updatedFields: {"a.b": 1}}`` on ``{a: {}}`` sets the field ``b`` of ``a``. A new field named ``a.b`` is
          assumed only if ``disambiguatedPaths`` says so or a field without a dot follows (top-level fields come first).

    Raises:
        CannotFold: A path leads through a scalar or does not exist; both readings of a dotted path exist; a document
            has a name on the path twice; the elements of a changed array are not numbered from 0; or parts of the patch
            contradict each other. With duplicate names or wrong numbers, even the members of a replica set may
            disagree.
        MalformedBson: The bytes are damaged.
    """
    return fold_with_certainty(base, description).document


def fold_with_certainty(base: bytes, description: bytes) -> Folded:
    """Fold like `fold`, and also return which parts of the result are certain."""
    root, patch = Branch(base), _parse(description)
    for path, size in patch.truncated:
        branch, name = _locate(root, path, patch, "truncate")
        array = branch.child(_existing_position(branch, name, path))
        assert array is not None  # _locate took nothing else
        array.truncate(size)
    removed: set[Value] = set()
    for path in patch.removed:
        if path == _ID:
            continue
        branch, name = _locate(root, path, patch, "remove")
        position = _existing_position(branch, name, path)
        removed.add(branch.value(position))
        branch.remove(position)
    for number, (path, value) in enumerate(patch.updated):
        branch, name = (root, path) if number < patch.top_level else _locate(root, path, patch, "update")
        _update(branch, name, value, removed if patch.is_diff else None)
    if not root.touched:
        return Folded(base, True, True)
    return Folded(root.render(), not patch.is_diff or root.order_is_certain(), patch.paths_are_certain)


def _update(branch: Branch, name: bytes, value: Value, removed: set[Value] | None) -> None:
    """Set one field or element.

    Args:
        removed: Values that the patch removes. None: the event is not from a diff, so fields never move.
    """
    if branch.is_array:
        index = array_index(name)
        assert index is not None  # _locate took nothing else
        branch.place(index, value)
        return
    position = branch.find(name)
    if position is None:
        branch.append(name, value)
        return
    is_own_id = name == _ID and branch.parent is None
    is_unchanged = value[0] != rb.ARRAY and value == branch.value(position)
    if removed is not None and is_unchanged and (is_own_id or value not in removed):
        branch.is_inserting = True
    if is_own_id:
        if not is_unchanged:
            branch.place(position, value)
    elif branch.is_inserting and removed is not None:
        branch.append(name, value)
    else:
        branch.place(position, value)


def _existing_position(branch: Branch, name: bytes, path: bytes) -> int:
    position = branch.find(name)
    if position is None:
        raise CannotFold("the base does not hold what the patch changes", path)
    return position


@dataclass
class _Patch:
    updated: list[tuple[bytes, Value]] = field(default_factory=list)
    removed: list[bytes] = field(default_factory=list)
    truncated: list[tuple[bytes, int]] = field(default_factory=list)
    components: dict[bytes, list[bytes | int]] | None = None  # None: the event has no disambiguatedPaths
    is_diff: bool = False  # servers from 5.0 on log diffs; their events always have truncatedArrays, if only empty
    top_level: int = 0  # number of leading updated fields that certainly are top-level fields
    paths_are_certain: bool = True


def _parse(description: bytes) -> _Patch:
    patch = _Patch()
    for kind, name, start, _ in rb.elements(description):
        if kind not in (rb.DOCUMENT, rb.ARRAY):
            continue  # null: the part is absent
        if name == b"updatedFields":
            patch.updated = [
                (path, (of, description[value:end])) for of, path, value, end in rb.elements(description, start)
            ]
        elif name == b"removedFields":
            patch.removed = [description[value + 4 : end - 1] for _, _, value, end in rb.elements(description, start)]
        elif name == b"truncatedArrays":
            patch.truncated = [_truncation(description, value) for _, _, value, _ in rb.elements(description, start)]
            patch.is_diff = True
        elif name == b"disambiguatedPaths":
            patch.components = {
                path: _components(description, value) for _, path, value, _ in rb.elements(description, start)
            }
    if patch.is_diff and patch.components is None:
        plain = (number for number, (path, _) in enumerate(patch.updated, 1) if b"." not in path)
        patch.top_level = max(plain, default=0)
    return patch


def _truncation(raw: bytes, start: int) -> tuple[bytes, int]:
    path, size = rb.field(raw, b"field", start), rb.field(raw, b"newSize", start)
    if path is None or path[0] != rb.STRING or size is None or size[0] not in (rb.INT32, rb.INT64):
        raise CannotFold("a truncated array has no field or no new size")
    length = rb.int32_at(raw, size[1]) if size[0] == rb.INT32 else rb.int64_at(raw, size[1])
    return raw[path[1] + 4 : path[2] - 1], length


def _components(raw: bytes, start: int) -> list[bytes | int]:
    return [
        rb.int32_at(raw, value) if kind == rb.INT32 else raw[value + 4 : end - 1]
        for kind, _, value, end in rb.elements(raw, start)
    ]


def _locate(root: Branch, path: bytes, patch: _Patch, action: str) -> Target:
    """Return the branch in which a path ends, and the field name or index there."""
    if patch.components is not None:
        return _follow(root, path, patch.components.get(path) or _plain(path), action)
    if b"." not in path and _suits(root, path, action):
        return root, path
    exact: list[Target] = []
    dotted: list[Target] = []
    is_stopped = _collect_readings(root, path.split(b"."), action, exact, dotted)
    patch.paths_are_certain &= len(exact) + len(dotted) == 1
    readings = exact or dotted
    if len(readings) > 1:
        raise CannotFold("the base allows more than one reading of a path", path)
    if exact:
        return exact[0]
    if is_stopped:
        raise CannotFold("a path leads through a scalar or through nothing", path)
    if not dotted or not patch.is_diff:
        raise CannotFold("the base does not hold what a path leads to", path)
    return dotted[0]


def _plain(path: bytes) -> list[bytes | int]:
    """Split a path that the server calls unambiguous. Every number except the first part is an array index."""
    first, *others = path.split(b".")
    parts: list[bytes | int] = [first]
    for part in others:
        index = array_index(part)
        parts.append(part if index is None else index)
    return parts


def _follow(root: Branch, path: bytes, parts: list[bytes | int], action: str) -> Target:
    """Follow the parts of a path from ``disambiguatedPaths``."""
    names = [b"%d" % part if isinstance(part, int) else part for part in parts]
    if b".".join(names) != path:
        raise CannotFold("the disambiguated path is another one", path)
    branch = root
    for part, name in zip(parts[:-1], names[:-1], strict=True):
        position = branch.find(name) if branch.is_array == isinstance(part, int) else None
        child = None if position is None else branch.child(position)
        if child is None:
            raise CannotFold("a path leads through a scalar or through nothing", path)
        branch = child
    if branch.is_array != isinstance(parts[-1], int) or not _suits(branch, names[-1], action):
        raise CannotFold("the base does not hold what a path leads to", path)
    return branch, names[-1]


def _suits(branch: Branch, name: bytes, action: str) -> bool:
    """Return True if *action* is possible on the field or element *name* of the branch."""
    if action == "update":
        return not branch.is_array or array_index(name) is not None
    position = branch.find(name)
    if position is None:
        return False
    return not branch.is_array if action == "remove" else branch.elements[position][0] == rb.ARRAY


def _collect_readings(
    branch: Branch, parts: list[bytes], action: str, exact: list[Target], dotted: list[Target]
) -> bool:
    """Collect every reading of a path that the base allows.

    Args:
        exact: Collects readings of existing fields, and of new fields without a dot in their names.
        dotted: Collects readings that would create a field with a dot in its name.

    Returns:
        True if a reading stopped early: at a scalar, or at an element that an array does not have.
    """
    is_stopped, last, name = False, len(parts), parts[0]
    for end in range(1, 2 if branch.is_array else last + 1):
        if end > 1:
            name += b"." + parts[end - 1]  # a field name may contain the dots itself; an index never does
        position = branch.find(name)
        if end == last:
            if _suits(branch, name, action):
                (exact if end == 1 or position is not None else dotted).append((branch, name))
            elif branch.is_array:
                is_stopped = True
        elif position is not None:
            child = branch.child(position)
            is_stopped |= child is None or _collect_readings(child, parts[end:], action, exact, dotted)
        elif branch.is_array:
            is_stopped = True
    return is_stopped
