"""Field renames in raw BSON. Pure: bytes in, bytes out.

A rename overwrites no value: if the parent document already has the new name, both fields keep their names. A patch
does not show all fields of the parent, so the full document of the same event decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.model.bson import raw as rb
from strandline.model.field_rules import FieldRule

_Reached = frozenset[int]
"""Possible numbers of matched components of the rule's path. Several, because a number may be an index or a name."""


def renamed_document(raw: bytes, rule: FieldRule) -> bytes:
    """Rename the field in a document, also inside arrays. Return the same bytes if the field is missing."""
    return _Rename(rule).document(raw, 0, frozenset((0,)), top=True) or raw


def renamed_update(update: bytes, rule: FieldRule, full_document: bytes | None) -> bytes:
    """Rename the field in all paths of an ``updateDescription``.

    Args:
        full_document: Document of the event, before this rename. It shows if the new name is taken. None: only the
            patch shows it.
    """
    return _Rename(rule).update(update, full_document)


class _Rename:
    def __init__(self, rule: FieldRule) -> None:
        self._path = tuple(component.encode() for component in rule.path)
        self._last = len(self._path) - 1
        self._new = rule.new_name.encode()

    def _step(self, reached: _Reached, token: bytes, *, top: bool) -> _Reached:
        on = {count + 1 for count in reached if count < self._last and self._path[count] == token}
        return frozenset(on | (reached if token.isdigit() and not top else set()))

    def document(
        self, raw: bytes, start: int, reached: _Reached, *, top: bool = False, array: bool = False
    ) -> bytes | None:
        """Return the renamed document or array at *start*; None if nothing changes."""
        is_parent = self._last in reached and not array and rb.field(raw, self._new, start) is None
        parts, changed = [], False
        for kind, name, value, end in rb.elements(raw, start):
            below = self._step(reached, name, top=top)
            inner = (
                self.document(raw, value, below, array=kind == rb.ARRAY)
                if below and kind in (rb.DOCUMENT, rb.ARRAY)
                else None
            )
            new_name = self._new if is_parent and name == self._path[-1] else name
            changed = changed or inner is not None or new_name != name
            parts.append(rb.element(new_name, kind, raw[value:end] if inner is None else inner))
        return rb.document_of(parts) if changed else None

    def update(self, update: bytes, full_document: bytes | None) -> bytes:
        fields = rb.field(update, b"updatedFields")
        set_paths = {name for _, name, _, _ in rb.elements(update, fields[1])} if fields is not None else set()
        parts = []
        for kind, name, value, end in rb.elements(update):
            content = update[value:end]
            if kind == rb.DOCUMENT and name == b"updatedFields":
                content = self._updated_fields(content, full_document, set_paths)
            elif kind == rb.DOCUMENT and name == b"disambiguatedPaths":
                content = self._disambiguated(content, full_document, set_paths)
            elif kind == rb.ARRAY and name == b"removedFields":
                content = rb.document_of(
                    update[at - len(number) - 2 : at]
                    + rb.string_value(self._renamed_path(update[at + 4 : to - 1], full_document, set_paths))
                    for _, number, at, to in rb.elements(update, value)
                )
            elif kind == rb.ARRAY and name == b"truncatedArrays":
                content = rb.document_of(
                    update[at - len(number) - 2 : at] + self._truncated(update[at:to], full_document, set_paths)
                    for _, number, at, to in rb.elements(update, value)
                )
            parts.append(update[value - len(name) - 2 : value] + content)
        return rb.document_of(parts)

    def _updated_fields(self, fields: bytes, full_document: bytes | None, set_paths: set[bytes]) -> bytes:
        parts = []
        for kind, path, value, end in rb.elements(fields):
            content = fields[value:end]
            below = frozenset((0,))
            for number, token in enumerate(path.split(b".")):
                below = self._step(below, token, top=number == 0)
            if below and kind in (rb.DOCUMENT, rb.ARRAY):
                content = self.document(content, 0, below, array=kind == rb.ARRAY) or content
            parts.append(rb.element(self._renamed_path(path, full_document, set_paths), kind, content))
        return rb.document_of(parts)

    def _truncated(self, entry: bytes, full_document: bytes | None, set_paths: set[bytes]) -> bytes:
        return rb.document_of(
            entry[value - len(name) - 2 : value]
            + (
                rb.string_value(self._renamed_path(entry[value + 4 : end - 1], full_document, set_paths))
                if name == b"field"
                else entry[value:end]
            )
            for _, name, value, end in rb.elements(entry)
        )

    def _disambiguated(self, paths: bytes, full_document: bytes | None, set_paths: set[bytes]) -> bytes:
        """Rename both forms of each path: ``{"a.0.b": ["a", 0, "b"]}``."""
        parts = []
        for kind, path, value, end in rb.elements(paths):
            at = self._component(path.split(b"."), full_document, set_paths)
            components = [
                paths[inner - len(number) - 2 : inner]
                + (rb.string_value(self._new) if place == at else paths[inner:stop])
                for place, (_, number, inner, stop) in enumerate(rb.elements(paths, value))
            ]
            parts.append(
                rb.element(self._renamed_path(path, full_document, set_paths), kind, rb.document_of(components))
            )
            assert end >= value  # the loop above read the whole array
        return rb.document_of(parts)

    def _renamed_path(self, path: bytes, full_document: bytes | None, set_paths: set[bytes]) -> bytes:
        tokens = path.split(b".")
        at = self._component(tokens, full_document, set_paths)
        return path if at is None else b".".join((*tokens[:at], self._new, *tokens[at + 1 :]))

    def _component(self, tokens: Sequence[bytes], full_document: bytes | None, set_paths: set[bytes]) -> int | None:
        """Return the index of the path component to rename; None if there is none or the new name is taken."""
        reached: _Reached = frozenset((0,))
        for number, token in enumerate(tokens):
            if self._last in reached and token == self._path[-1]:
                parent = tokens[:number]
                if b".".join((*parent, self._new)) in set_paths or (
                    full_document is not None and self._taken(full_document, parent)
                ):
                    return None
                return number
            reached = self._step(reached, token, top=number == 0)
        return None

    def _taken(self, full_document: bytes, parent: Sequence[bytes]) -> bool:
        start = 0
        for token in parent:
            span = rb.field(full_document, token, start)
            if span is None or span[0] not in (rb.DOCUMENT, rb.ARRAY):
                return False
            start = span[1]
        return rb.field(full_document, self._new, start) is not None
