"""A document or array that a patch changes, and its pending changes. Pure.

Only changed branches are parsed. The bytes between two changes are copied in one slice.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.model.bson import raw as rb

_CONTAINERS = (rb.DOCUMENT, rb.ARRAY)
_LARGEST_PADDING = 1_500_000
"""Maximum nulls that MongoDB inserts before an index beyond the end of an array. More is error 2, BadValue."""


class CannotFold(ValueError):
    """The patch does not fit the document, or fits in more than one way.

    The document was not changed; a newer document is needed.

    The message shows only the shape of the path (``name.#.name``), never a name or a value.
    """

    def __init__(self, reason: str, path: bytes = b"") -> None:
        super().__init__(f"{reason}: {shape_of(path)}" if path else reason)


def shape_of(path: bytes) -> str:
    """Return the path with every part replaced: ``#`` for digits, ``name`` for anything else."""
    return ".".join("#" if part.isdigit() else "name" for part in path.split(b"."))


def array_index(part: bytes) -> int | None:
    """Return the array index in a part of a path. None: the part is a name. An index has no leading zero."""
    is_index = part.isdigit() and len(part) <= 10 and (part[:1] != b"0" or part == b"0")
    return int(part) if is_index else None


class Branch:
    """A document or array of the base document, with the changes to its own fields.

    Args:
        raw: BSON that contains the document or array.
        start: Offset of the document or array in *raw*, in bytes.
        is_array: True for an array.
        parent: Branch that contains this one. None: this is the base document itself.
    """

    def __init__(self, raw: bytes, start: int = 0, *, is_array: bool = False, parent: Branch | None = None) -> None:
        self._raw, self._start, self.is_array, self.parent = raw, start, is_array, parent
        self.elements = list(rb.elements(raw, start))
        self.positions = {} if is_array else {element[1]: position for position, element in enumerate(self.elements)}
        self._has_doubles = not is_array and len(self.positions) != len(self.elements)
        self.touched = False
        self.is_inserting = False  # True: the remaining fields of the patch are new fields, appended at the end
        self._children: dict[int, Branch] = {}
        self._placed: dict[int, tuple[int, bytes]] = {}  # position → new value; may lie beyond the end of an array
        self._gone: set[int] = set()
        self._new: dict[bytes, tuple[int, bytes]] = {}
        self._size: int | None = None

    def find(self, name: bytes) -> int | None:
        """Return the position of a field or array element in the base. None: not found.

        Raises:
            CannotFold: The document has the name twice. A primary changes the first field; applying the oplog changes
                both.
        """
        if not self.is_array:
            if self._has_doubles and sum(element[1] == name for element in self.elements) > 1:
                raise CannotFold("a name stands twice in its document")
            return self.positions.get(name)
        index = array_index(name)
        return index if index is not None and index < len(self.elements) else None

    def child(self, position: int) -> Branch | None:
        """Return the document or array at a position. None: the value is a scalar."""
        kind, _, value, _ = self.elements[position]
        if kind not in _CONTAINERS:
            return None
        child = self._children.get(position)
        if child is None:
            child = self._children[position] = Branch(self._raw, value, is_array=kind == rb.ARRAY, parent=self)
        return child

    def value(self, position: int) -> tuple[int, bytes]:
        kind, _, value, end = self.elements[position]
        return kind, self._raw[value:end]

    def place(self, position: int, value: tuple[int, bytes]) -> None:
        """Set the value at a position, which may lie beyond the end of an array."""
        if position > len(self.elements) + _LARGEST_PADDING:
            raise CannotFold("an index far beyond the end of its array")
        self._change(position)
        self._placed[position] = value

    def append(self, name: bytes, value: tuple[int, bytes]) -> None:
        """Append a field at the end. A field of the same name in the base is removed."""
        position = self.positions.get(name)
        if position is not None:
            self.remove(position)
        if name in self._new:
            raise CannotFold("the patch names a field twice")
        self._touch()
        self.is_inserting = True
        self._new[name] = value

    def remove(self, position: int) -> None:
        self._change(position)
        self._gone.add(position)

    def truncate(self, size: int) -> None:
        if self._size is not None or not 0 <= size <= len(self.elements):
            raise CannotFold("an array is not as long as the patch says")
        self._touch()
        self._size = size

    def _change(self, position: int) -> None:
        child = self._children.get(position)
        if position in self._placed or position in self._gone or (child is not None and child.touched):
            raise CannotFold("the patch names a field twice")
        self._touch()

    def _touch(self) -> None:
        if self.touched:
            return
        if self.is_array and any(element[1] != b"%d" % index for index, element in enumerate(self.elements)):
            raise CannotFold("an array whose elements are not numbered from 0")
        self.touched = True
        if self.parent is not None:
            self.parent._touch()

    def order_is_certain(self) -> bool:
        """Return False if a field that was updated in place may have moved to the end in the source: see `fold`."""
        last = len(self.elements) - 1
        gone = set(self._gone)
        for position in () if self.is_array else reversed(self._placed):
            gone.add(position)
            while last in gone:
                last -= 1
            if last > position:
                return False
        return all(child.order_is_certain() for child in self._children.values() if child.touched)

    def render(self) -> bytes:
        """Return the BSON of the document or array after the changes."""
        length = len(self.elements) if self._size is None else self._size
        return rb.document_of([*self._changed_elements(length), *self._appended_elements(length)])

    def _changed_elements(self, length: int) -> Iterator[bytes]:
        children = {position: child for position, child in self._children.items() if child.touched}
        if any(position in self._placed or position in self._gone or position >= length for position in children):
            raise CannotFold("the patch changes a branch that it replaces")
        copied = self._start + 4
        for position in sorted({*self._placed, *self._gone, *children}):
            if position >= length:
                break
            kind, name, value, end = self.elements[position]
            yield self._raw[copied : value - len(name) - 2]
            copied = end
            if position in children:
                yield rb.element(name, kind, children[position].render())
            elif position in self._placed:
                yield rb.element(name, *self._placed[position])
        stop = self.elements[length - 1][3] if length else copied
        if stop > copied:
            yield self._raw[copied:stop]

    def _appended_elements(self, length: int) -> Iterator[bytes]:
        if self.is_array:
            last = max(self._placed, default=-1)
            for index in range(length, last + 1):
                yield rb.element(b"%d" % index, *self._placed.get(index, (rb.NULL, b"")))
        for name, value in self._new.items():
            yield rb.element(name, *value)
