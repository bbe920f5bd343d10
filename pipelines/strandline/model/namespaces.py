"""Namespaces (``database.collection``), and the events that drop or rename a collection. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from strandline.model.bson import raw as rb

ENDING_OPERATIONS: Final = ("drop", "rename")
"""Operations that end a life of a collection's name or begin one. A dropDatabase follows a drop of each collection."""
NAMESPACE_OPERATIONS: Final = ("create", *ENDING_OPERATIONS)
"""Operations that tell which collection has a name."""

SEARCH_DATABASE: Final = "__mdb_internal_search"
_TEMPORARY = re.compile(r"tmp\.(?:agg_out|mr)\.|tmp[A-Za-z0-9]{5}\.(?:renameCollection\Z|convertToCapped\.)")


class Namespace(NamedTuple):
    """Name of a collection of the source. Without a database: name of a tenant table (`model.tenants`)."""

    db: str
    collection: str

    def __str__(self) -> str:
        return f"{self.db}.{self.collection}" if self.db else self.collection

    @staticmethod
    def parse(text: str) -> Namespace:
        """Parse ``database.collection``. The first dot separates, because a database's name holds no dot."""
        database, dot, collection = text.partition(".")
        return Namespace(database, collection) if dot else Namespace("", text)

    @property
    def is_tenant_table(self) -> bool:
        """True if it names no collection, but a table of many."""
        return not self.db

    @property
    def is_system(self) -> bool:
        """True if the server keeps the collection for itself: buckets of a time series, views, pre-images."""
        return self.collection.startswith("system.")

    @property
    def is_internal(self) -> bool:
        """True if a feature of the server keeps its own state in the collection.

        Search indexes have a database (SERVER-134970), queryable encryption has collections.
        """
        return self.is_system or self.db == SEARCH_DATABASE or self.collection.startswith("enxcol_.")

    @property
    def is_temporary(self) -> bool:
        """True if the server fills the collection only to rename it.

        Examples: ``$out``, ``mapReduce``, a rename across databases, ``convertToCapped``.
        """
        return _TEMPORARY.match(self.collection) is not None

    @property
    def is_filled_unseen(self) -> bool:
        """True if the server fills the collection without change events."""
        return self.is_temporary and ".convertToCapped." in self.collection


@dataclass(frozen=True, order=True)
class NamespaceEvent:
    """Creation, drop or rename of a collection. Servers before 6.0 send no UUIDs: only the names identify it."""

    position: str
    namespace: Namespace
    uuid: str | None
    to: Namespace | None = None
    """New name. None: a drop or a creation."""
    target_uuid: str | None = None
    """UUID of the collection that the rename dropped (dropTarget, ``$out``). That drop has no event of its own."""
    is_creation: bool = False


def namespace_event(position: str, event: bytes) -> NamespaceEvent | None:
    """Parse a ``create``, ``drop`` or ``rename`` event. None: it is none of them, or it concerns no collection.

    No collections are views, and the buckets of a time series. An upgrade to 9.0 renames ``system.buckets.X`` to X, and
    X is a time series then (SERVER-117258).

    Raises:
        MalformedBson: The bytes are damaged.
    """
    kind, where = operation_of(event), namespace_of(event)
    if where is None or kind not in NAMESPACE_OPERATIONS:
        return None
    own = _uuid(event, rb.field(event, b"collectionUUID"))
    if kind == "create":
        return None if own is None else NamespaceEvent(position, where, own, is_creation=True)
    description = rb.field(event, b"operationDescription")
    target = rb.field(event, b"dropTarget", description[1]) if description and description[0] == rb.DOCUMENT else None
    to = _namespace(event, rb.field(event, b"to"))
    if where.is_system or (to is not None and to.is_system):
        return None
    return NamespaceEvent(position, where, own, to, _uuid(event, target))


def name_in_events(collection: Namespace) -> bytes:
    """Return bytes that every event of *collection* holds. A search for them costs less than a parse."""
    name = collection.collection.encode()
    return b"\x02coll\0" + (len(name) + 1).to_bytes(4, "little") + name + b"\0"


def operation_of(event: bytes) -> str | None:
    """Return the operation type of an event. None: it has none."""
    kind = rb.field(event, b"operationType")
    return None if kind is None else rb.text(event, kind[1], kind[2])


def namespace_of(event: bytes) -> Namespace | None:
    """Return the namespace of an event. None: the event belongs to no single collection."""
    return _namespace(event, rb.field(event, b"ns"))


def _namespace(event: bytes, span: tuple[int, int, int] | None) -> Namespace | None:
    if span is None or span[0] != rb.DOCUMENT:
        return None
    db, collection = rb.field(event, b"db", span[1]), rb.field(event, b"coll", span[1])
    return Namespace(rb.text(event, *db[1:]), rb.text(event, *collection[1:])) if db and collection else None


def _uuid(event: bytes, span: tuple[int, int, int] | None) -> str | None:
    return None if span is None or span[0] != rb.BINARY else event[span[1] + 5 : span[2]].hex()
