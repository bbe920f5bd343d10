"""Options and indexes of a collection at a moment, from the definitions that its events show. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import bson
from bson import json_util
from bson.codec_options import CodecOptions

from strandline.model.namespaces import Namespace

DEFINING_OPERATIONS: Final = ("create", "createIndexes", "dropIndexes", "modify", "drop", "rename")
_CODEC: Final[CodecOptions[dict[str, Any]]] = CodecOptions(tz_aware=True, unicode_decode_error_handler="replace")
_ID_INDEX: Final = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
_RENAMED_OPTIONS: Final = {"cappedSize": "size", "cappedMax": "max"}
"""Options of ``collMod`` that have another name in ``create``."""


@dataclass(frozen=True)
class Definition:
    """Options and indexes of a collection, as far as bronze shows them."""

    options: Mapping[str, Any] = field(default_factory=dict)
    indexes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By name, without the index of `_id`."""
    id_index: Mapping[str, Any] = field(default_factory=lambda: _ID_INDEX)
    is_whole: bool = False
    """True: bronze has the creation of the collection, so nothing is missing."""

    def metadata(self, namespace: Namespace) -> str:
        """Return the content of ``<collection>.metadata.json``, as `mongodump` writes it."""
        indexes = [self.id_index, *self.indexes.values()]
        content = {"options": self.options, "indexes": indexes, "collectionName": namespace.collection}
        return json_util.dumps({**content, "type": "collection"}, json_options=json_util.CANONICAL_JSON_OPTIONS)


@dataclass(frozen=True)
class _Change:
    """One event of a definition."""

    position: str
    operation: str
    namespace: Namespace
    to: Namespace | None
    description: Mapping[str, Any]


class Definitions:
    """Definitions of all collections.

    Args:
        rows: Bronze rows of `DEFINING_OPERATIONS`: ``position``, ``operation_type``, ``envelope``.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._changes = sorted(_changes(rows), key=lambda change: change.position)

    def at(self, namespace: Namespace, moment: str) -> Definition:
        """Return the definition of the collection before the position *moment*."""
        definition = Definition()
        for change in self._changes:
            if change.position >= moment:
                break
            if change.to == namespace:
                definition = self.at(change.namespace, change.position)
            elif change.namespace == namespace:
                definition = _changed(definition, change)
        return definition


def _changes(rows: Sequence[Mapping[str, Any]]) -> Iterator[_Change]:
    for row in rows:
        event = bson.decode(row["envelope"], _CODEC)
        where, to = event.get("ns") or {}, event.get("to")
        if "coll" in where:
            yield _Change(
                row["position"],
                row["operation_type"],
                Namespace(where["db"], where["coll"]),
                None if to is None else Namespace(to["db"], to["coll"]),
                event.get("operationDescription") or {},
            )


def _changed(definition: Definition, change: _Change) -> Definition:
    """Return *definition* after an event of its collection."""
    options, indexes = dict(definition.options), dict(definition.indexes)
    description = dict(change.description)
    if change.operation in ("drop", "rename"):
        return Definition()
    if change.operation == "create":
        id_index = description.pop("idIndex", _ID_INDEX)
        return Definition(description, {}, id_index, is_whole=True)
    for index in description.pop("indexes", ()):
        if change.operation == "createIndexes":
            indexes[index["name"]] = index
        else:
            indexes.pop(index["name"], None)
    if change.operation == "modify":
        index = description.pop("index", None)
        if index and index.get("name") in indexes:
            indexes[index["name"]] = {**indexes[index["name"]], **index}
        options |= {_RENAMED_OPTIONS.get(name, name): value for name, value in description.items()}
    return Definition(options, indexes, definition.id_index, definition.is_whole)
