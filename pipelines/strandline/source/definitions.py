"""Definitions in events (indexes, validators, options of a collection) that name a protected field. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

from strandline.model.bson import raw as rb

DEFINITIONS: Final = (b"operationDescription", b"stateBeforeChange")
"""Fields of an event that hold definitions. Those of a ``rename`` hold the names of collections only."""

_WITH_OWN_KEYS: Final = (b"index", b"idIndex", b"indexOptions", b"collectionOptions")
_TEXTS: Final = (rb.STRING, rb.CODE, rb.SYMBOL, rb.REGEX, rb.CODE_WITH_SCOPE)


def without_fields(definition: bytes, names: Set[bytes]) -> bytes:
    """Remove each index, validator or option that names one of the fields. Return the same bytes if none does.

    The whole part goes: the name of an index repeats the field, and its filter may hold a value.

    Args:
        names: Last components of the paths of the fields. A part that has one of them in another path goes, too.
    """
    return rb.document_of(_parts(definition, names))


def _parts(definition: bytes, names: Set[bytes]) -> Iterator[bytes]:
    for kind, name, value, end in rb.elements(definition):
        if kind == rb.ARRAY:  # of indexes
            inner = [
                (one, definition[at:to])
                for one, _, at, to in rb.elements(definition, value)
                if not _has_name(definition, one, at, to, names, has_own_keys=True)
            ]
            numbered = (rb.element(b"%d" % number, *part) for number, part in enumerate(inner))
            yield rb.element(name, kind, rb.document_of(numbered))
        elif not _has_name(definition, kind, value, end, names, has_own_keys=name in _WITH_OWN_KEYS):
            yield definition[value - len(name) - 2 : end]


def _has_name(raw: bytes, kind: int, value: int, end: int, names: Set[bytes], *, has_own_keys: bool = False) -> bool:
    """Return True if the value names one of the fields.

    Args:
        has_own_keys: The keys of the document are MongoDB's words, such as the ``name`` of an index.
    """
    if kind in _TEXTS:  # the name of an index, a path as "$a.b"
        return any(name in raw[value:end] for name in names)
    if kind not in (rb.DOCUMENT, rb.ARRAY):
        return False
    holds_fields = kind == rb.DOCUMENT and not has_own_keys
    return any(
        (holds_fields and not names.isdisjoint((*key.split(b"."), *key.lstrip(b"$").split(b"."))))
        or _has_name(raw, inner, at, to, names)
        for inner, key, at, to in rb.elements(raw, value)
    )
