"""Field rules (exclude, hash, mask, rename) applied to raw BSON. Pure: bytes in, bytes out.

Every event and snapshot document passes through this module before it reaches a table. An excluded, masked or hashed
value survives in no part of it: ``fullDocument``, pre-image, ``updatedFields`` (as parent, child or dotted path),
``removedFields``, ``truncatedArrays``, ``disambiguatedPaths``, definitions of indexes and validators. Bytes that no
rule matches are copied unchanged.

Paths match as in a patch, so that patches and full documents agree. Arrays are transparent. A number in the data's path
may be an array index (``a.b`` matches ``a.0.b``). A field name with dots matches as a path.
Hash and mask replace each scalar below a path. Arrays keep their length, documents keep their names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256

from strandline.errors import ConfigurationError
from strandline.model.bson import raw as rb
from strandline.model.field_rules import FieldPolicy, FieldRule
from strandline.source.definitions import DEFINITIONS, without_fields
from strandline.source.field_renames import renamed_document, renamed_update

_KEEP, _HASH, _MASK, _EXCLUDE = range(4)  # if rules overlap, the larger number wins
_ACTIONS = {"hash": _HASH, "mask": _MASK, "exclude": _EXCLUDE}
_DATA = (b"fullDocument", b"fullDocumentBeforeChange")
_CACHED_STEPS = 4096
# Top-level fields of an event without data of the collection. The rules apply to all others, so also to new ones.
_NO_DATA = frozenset(
    (b"_id", b"ns", b"to", b"lsid", b"documentKey", b"updateDescription", b"operationDescription", b"stateBeforeChange")
)


class _Node:
    """One component of a rule's path."""

    __slots__ = ("action", "children")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.action = _KEEP


_State = tuple[_Node, ...]
"""Path components of rules that match the data's path so far. Empty: no rule matches here or below."""


class FieldRules:
    """Compiled field rules of one collection."""

    def __init__(self, policy: FieldPolicy) -> None:
        self._salt = policy.salt
        self._mask = rb.string_value(policy.mask.encode())
        self._root = _Node()
        self._last_names = frozenset(rule.path[-1].encode() for rule in policy.rules)
        self._protected = frozenset(rule.path[-1].encode() for rule in policy.rules if rule.action != "rename")
        self._step = lru_cache(maxsize=_CACHED_STEPS)(_step)  # documents of a collection have the same names
        self._renames: list[FieldRule] = []
        for rule in policy.rules:
            if rule.action == "rename":
                self._renames.append(rule)
                continue
            node = self._root
            for component in rule.path:
                node = node.children.setdefault(component.encode(), _Node())
            node.action = max(node.action, _ACTIONS[rule.action])

    def rewrite_document(self, raw: bytes) -> bytes:
        """Apply the rules to a snapshot document. Return the same bytes if no rule matches.

        Raises:
            MalformedBson: The bytes are damaged. The message holds no content.
        """
        if self._matches_nothing(raw):
            return raw
        raw = self._with_rules(raw)
        for rule in self._renames:
            raw = renamed_document(raw, rule)
        return raw

    def rewrite_event(self, raw: bytes) -> bytes:
        """Apply the rules to a change event of this collection. Return the same bytes if no rule matches.

        Raises:
            MalformedBson: The bytes are damaged. The message holds no content.
            ConfigurationError: An excluded, masked or hashed field is part of the shard key, which the server writes
                into every resume token.
        """
        if self._matches_nothing(raw):
            return raw
        spans = {name: (kind, value, end) for kind, name, value, end in rb.elements(raw)}
        documents = {name: raw[value:end] for name, (kind, value, end) in spans.items() if kind == rb.DOCUMENT}
        self._refuse_shard_key(documents.get(b"documentKey"))
        changed = {name: self._with_rules(document) for name, document in documents.items() if name not in _NO_DATA}
        if (update := documents.get(b"updateDescription")) is not None:
            changed[b"updateDescription"] = self._update_with_rules(update)
        if b"to" not in documents:  # a rename has no definitions
            changed |= {
                name: without_fields(documents[name], self._protected) for name in DEFINITIONS if name in documents
            }
        for rule in self._renames:
            if b"updateDescription" in changed:  # needs the document before this rename
                changed[b"updateDescription"] = renamed_update(
                    changed[b"updateDescription"], rule, changed.get(b"fullDocument")
                )
            changed |= {name: renamed_document(changed[name], rule) for name in _DATA if name in changed}
        if all(changed[name] == documents[name] for name in changed):
            return raw
        return rb.document_of(
            raw[value - len(name) - 2 : value] + changed[name] if name in changed else raw[value - len(name) - 2 : end]
            for name, (_, value, end) in spans.items()
        )

    def _matches_nothing(self, raw: bytes) -> bool:
        """Return True if no rule can match, because the last name of no rule's path occurs in the bytes."""
        return not any(name in raw for name in self._last_names)

    def _refuse_shard_key(self, key: bytes | None) -> None:
        for _, name, _, _ in rb.elements(key) if key is not None else ():
            below, action = self._step((self._root,), name, True)
            if action or below:
                raise ConfigurationError(
                    "a field that is to be excluded, masked or hashed is part of a shard key, "
                    "and MongoDB writes it into every resume token",
                    next_step="remove it from capture.field_exclude_list, field_mask_list and field_hash_list",
                )

    def _with_rules(self, document: bytes) -> bytes:
        if not self._root.children:
            return document
        rewritten = self._rewritten(document, 0, (self._root,), _KEEP, top=True)
        return document if rewritten is None else rewritten

    def _rewritten(
        self, raw: bytes, start: int, state: _State, inherited: int, *, top: bool = False, array: bool = False
    ) -> bytes | None:
        """Apply the rules below *state* to the document or array at *start*. Return None if nothing changes."""
        parts: list[bytes] = []
        copied = start + 4
        for kind, name, value, end in rb.elements(raw, start):
            below, action = self._step(state, name, top)
            action = max(action, inherited)
            if not below and action == _KEEP:
                continue
            if action == _EXCLUDE:
                # In an array null keeps the place, because a patch addresses elements by index.
                element = rb.element(name, rb.NULL, b"") if array else b""
            else:
                rewritten = self._value(raw, kind, value, end, below, action)
                if rewritten is None:
                    continue
                element = rb.element(name, *rewritten)
            parts += (raw[copied : value - len(name) - 2], element)
            copied = end
        if not parts:
            return None
        return rb.document_of((*parts, raw[copied : start + rb.int32_at(raw, start) - 1]))

    def _value(
        self, raw: bytes, kind: int, value: int, end: int, below: _State, action: int
    ) -> tuple[int, bytes] | None:
        """Return BSON type and bytes of the new value; None if the value stays."""
        if kind in (rb.DOCUMENT, rb.ARRAY):
            inner = self._rewritten(raw, value, below, action, array=kind == rb.ARRAY)
            return None if inner is None else (kind, inner)
        if action == _KEEP or kind in (rb.NULL, rb.UNDEFINED):
            return None
        if action == _MASK:
            return rb.STRING, self._mask
        # Text is hashed as UTF-8, so that SQL can compute the same hash. Other values include their type: 1 is not "1".
        content = raw[value + 4 : end - 1] if kind == rb.STRING else b"\0" + bytes((kind,)) + raw[value:end]
        return rb.STRING, rb.string_value(sha256(self._salt + content).hexdigest().encode())

    def _update_with_rules(self, update: bytes) -> bytes:
        if not self._root.children:
            return update
        parts = []
        for kind, name, value, end in rb.elements(update):
            content = update[value:end]
            if kind == rb.DOCUMENT and name == b"updatedFields":
                content = self._with_rules(content)
            elif kind == rb.DOCUMENT and name == b"disambiguatedPaths":
                content = self._without_excluded(content, lambda path, *_: path)
            elif kind == rb.ARRAY and name == b"removedFields":
                content = self._without_excluded(content, lambda _, raw, at, to: raw[at + 4 : to - 1], array=True)
            elif kind == rb.ARRAY and name == b"truncatedArrays":
                content = self._without_excluded(content, _truncated_path, array=True)
            parts.append(update[value - len(name) - 2 : value] + content)
        return rb.document_of(parts)

    def _without_excluded(
        self, raw: bytes, path_of: Callable[[bytes, bytes, int, int], bytes], *, array: bool = False
    ) -> bytes:
        """Remove paths at or below an excluded field from a list of paths."""
        members = [
            (kind, name, raw[value:end])
            for kind, name, value, end in rb.elements(raw)
            if self._step((self._root,), path_of(name, raw, value, end), True)[1] != _EXCLUDE
        ]
        named = (
            (kind, b"%d" % number if array else name, payload) for number, (kind, name, payload) in enumerate(members)
        )
        return rb.document_of(rb.element(name, kind, payload) for kind, name, payload in named)


class FieldRewriter:
    """Field rules of all collections, compiled at the first event of each."""

    def __init__(self, policy: FieldPolicy) -> None:
        self._policy = policy
        self._compiled: dict[tuple[str, str], FieldRules | None] = {}
        self._of_event: dict[bytes, FieldRules | None] = {}

    def rules_for(self, database: str, collection: str) -> FieldRules | None:
        """Return the rules of one collection; None if it has no rules."""
        key = (database, collection)
        if key not in self._compiled:
            own = self._policy.for_collection(database, collection)
            self._compiled[key] = FieldRules(own) if own.rules else None
        return self._compiled[key]

    def rewrite_event(self, raw: bytes) -> bytes:
        """Apply the rules of an event's collection to the event. Return the same bytes if no rule matches.

        Raises:
            MalformedBson: The bytes are damaged. The message holds no content.
            ConfigurationError: The event has a document but no namespace (a user's pipeline removed it); or see
                `FieldRules.rewrite_event`.
        """
        if not self._policy.rules:
            return raw
        span = rb.field(raw, b"ns")
        namespace = b"" if span is None else raw[span[1] : span[2]]
        if namespace not in self._of_event:
            names = {
                name: rb.text(namespace, value, end)
                for _, name, value, end in (rb.elements(namespace) if namespace else ())
            }
            if b"coll" not in names or b"db" not in names:
                return self._without_collection(raw)
            self._of_event[namespace] = self.rules_for(names[b"db"], names[b"coll"])
        rules = self._of_event[namespace]
        return raw if rules is None else rules.rewrite_event(raw)

    def _without_collection(self, raw: bytes) -> bytes:
        if any(rb.field(raw, name) for name in (*_DATA, b"updateDescription")):
            raise ConfigurationError(
                "a change event names no collection, so no field rule can be applied",
                next_step="keep ns in capture.cursor_pipeline",
            )
        return raw


def _step(state: _State, name: bytes, top: bool) -> tuple[_State, int]:
    """Match one more name. Return the new state and the strongest action on the way.

    A number may be an array index, except at the top level.
    """
    strongest = _KEEP
    for token in name.split(b"."):
        following = [child for node in state if (child := node.children.get(token)) is not None]
        for child in following:
            strongest = max(strongest, child.action)
        if token.isdigit() and not top:
            following += state
        state, top = tuple(following), False
        if not state:
            break
    return state, strongest


def _truncated_path(_name: bytes, raw: bytes, value: int, _end: int) -> bytes:
    span = rb.field(raw, b"field", value)
    return b"" if span is None else raw[span[1] + 4 : span[2] - 1]
