"""Snapshots in `_id` ranges, which tile MinKey → MaxKey, and the reading of one at one cluster time.

Index bounds (``min``/``max`` with a hint) follow the server's own order across BSON types; ``$gte``/``$lt`` silently skip every other
type. The first chunk has no lower and the last no upper bound, so that together they tile everything.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from bson.max_key import MaxKey
from bson.raw_bson import RawBSONDocument

from pipelines.errors import ConfigurationError, ContractError
from pipelines.model.bson.merge_key import document_merge_key
from pipelines.model.field_rules import FieldPolicy
from pipelines.source.client import AnyClient, Collection, find_collection, read_command, read_concern, translate_errors
from pipelines.source.field_stages import exclusion_projection
from pipelines.source.fields import FieldRewriter

_TYPE = 4
"""Where in ``{_id: value}`` the value's type stands."""
_MAX_KEY = 0x7F
_ENDS = (0xFF, _MAX_KEY)
_LIST_ROWS = 10_000
_LIST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Range:
    """``[lower, upper)`` in the server's `_id` order; each bound is the BSON document ``{_id: value}``, None is open."""

    lower: bytes | None = None
    upper: bytes | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"lower": _encoded(self.lower), "upper": _encoded(self.upper)}

    @staticmethod
    def from_json(stored: Mapping[str, str | None]) -> Range:
        return Range(_decoded(stored["lower"]), _decoded(stored["upper"]))


def _encoded(bound: bytes | None) -> str | None:
    return None if bound is None else b64encode(bound).decode("ascii")


def _decoded(bound: str | None) -> bytes | None:
    return None if bound is None else b64decode(bound)


def can_bound(identifier: bytes) -> bool:
    """Whether ``{_id: value}`` can part two ranges: MinKey and MaxKey, which are legal `_id`s, cannot. The server refuses a range that ends
    where everything begins."""
    return identifier[_TYPE] not in _ENDS


def tile(bounds: Sequence[bytes]) -> list[Range]:
    """Ranges between those of *bounds* (sorted by the server) that `can_bound`; equal neighbours are one (``1`` and ``1.0`` are the same
    `_id`)."""
    distinct: list[bytes] = []
    for bound in bounds:
        if can_bound(bound) and (not distinct or document_merge_key(distinct[-1]) != document_merge_key(bound)):
            distinct.append(bound)
    lowers: list[bytes | None] = [None, *distinct]
    uppers: list[bytes | None] = [*distinct, None]
    return [Range(lower, upper) for lower, upper in zip(lowers, uppers, strict=True)]


@dataclass(frozen=True)
class Reading:
    """What of a range's documents is read, and how."""

    fields: FieldPolicy = FieldPolicy()
    """Rules for single fields; what they exclude is not even asked for."""
    query: Mapping[str, Any] = field(default_factory=dict)
    """Only documents that match; empty: all."""
    fetch_size: int = _LIST_ROWS
    """Documents of one answer of the server."""


def read_range(
    client: AnyClient, collection: Collection, chunk: Range, at: tuple[int, int], reading: Reading = Reading()
) -> Iterator[list[bytes]]:
    """I/O: documents of one range exactly as they were at cluster time *at*, in lists bounded by rows and by bytes.

    Those of a capped collection may be newer: see `read_concern`.

    Args:
        client: Opened with ``raw=True``.

    Raises:
        ContractError: The collection is gone, or is another incarnation than was planned: the chunk must be discarded.
        RetriableError: Among others SnapshotTooOld: read again at a new time.
        ConfigurationError: The server refuses to read it.
    """
    collection = _same_incarnation(client, collection)
    rules = FieldRewriter(reading.fields).collection(collection.db, collection.name)
    with _asking_for(client, collection):
        documents: list[bytes] = []
        size = 0
        for document in _documents(client, collection, chunk, at, reading):
            raw = bytes(document.raw) if rules is None else rules.document(bytes(document.raw))
            documents.append(raw)
            size += len(raw)
            if len(documents) >= _LIST_ROWS or size >= _LIST_BYTES:
                yield documents
                documents, size = [], 0
        yield documents
    _same_incarnation(client, collection)


def check_range(client: AnyClient, collection: Collection, chunk: Range, at: tuple[int, int], reading: Reading) -> None:
    """I/O: the same reading, of the first document and the `_id`s of the others. Raises as `read_range`."""
    collection = _same_incarnation(client, collection)
    with _asking_for(client, collection):
        next(_documents(client, collection, chunk, at, reading), None)
        for _ in _documents(client, collection, chunk, at, reading, {"_id": 1}):
            pass


@contextmanager
def _asking_for(client: AnyClient, collection: Collection) -> Iterator[None]:
    """What a server refuses to read because it was dropped meanwhile is gone, and no refusal."""
    try:
        with translate_errors(f"reading {collection}"):
            yield
    except ConfigurationError:
        _same_incarnation(client, collection)
        raise


def _documents(
    client: AnyClient,
    collection: Collection,
    chunk: Range,
    at: tuple[int, int],
    reading: Reading,
    projection: Mapping[str, Any] | None = None,
) -> Iterator[RawBSONDocument]:
    """*projection*: default: what the field rules do not exclude."""
    database = client[collection.db]
    find = _find_at(collection, chunk, at) | {"batchSize": reading.fetch_size}
    if reading.query:
        find["filter"] = reading.query
    if projection := projection or exclusion_projection(reading.fields, collection.db, collection.name):
        find["projection"] = projection
    document = None
    for document in read_command(database, find):
        yield document
    if chunk.lower is not None and chunk.upper is None and (document is None or document.raw[_TYPE] != _MAX_KEY):
        # An open upper bound ends *before* MaxKey, which is a legal `_id`; but not in a clustered collection.
        only = {"_id": MaxKey()}
        filtered = {"$and": [only, reading.query]} if reading.query else only
        last = {key: find[key] for key in find if key not in ("min", "hint")} | {"filter": filtered}
        yield from read_command(database, last)


def _find_at(collection: Collection, chunk: Range, at: tuple[int, int]) -> dict[str, Any]:
    command: dict[str, Any] = {"find": collection.name, "hint": {"_id": 1}}
    if chunk.lower is not None:
        command["min"] = RawBSONDocument(chunk.lower)
    if chunk.upper is not None:
        command["max"] = RawBSONDocument(chunk.upper)
    return command | {"readConcern": read_concern(collection, at)}


def _same_incarnation(client: AnyClient, collection: Collection) -> Collection:
    with translate_errors(f"looking for {collection}"):
        now = find_collection(client[collection.db], collection.name)
    if now is None or now.uuid != collection.uuid:
        raise ContractError(
            f"{collection} was dropped or renamed while its snapshot ran",
            next_step="strandline capture: the rest of the snapshot goes on",
        )
    return now


class ChunkManifest:
    """What one chunk read: kept beside its rows, written by the same task. *digest* does not depend on the batches."""

    def __init__(self) -> None:
        self.documents = 0
        self.bytes = 0
        self._digest = sha256()

    def add(self, documents: Sequence[bytes]) -> None:
        self.documents += len(documents)
        for document in documents:
            self.bytes += len(document)
            self._digest.update(document)

    def to_json(self, chunk: Range) -> str:
        content = {
            "documents": self.documents,
            "bytes": self.bytes,
            "sha256": self._digest.hexdigest(),
            **chunk.to_json(),
        }
        return json.dumps(content, sort_keys=True)


def tiles_completely(chunks: Sequence[Range]) -> bool:
    """Whether *chunks* (in any order) cover MinKey → MaxKey without a hole or an overlap."""
    following = {chunk.lower: chunk.upper for chunk in chunks}
    if len(following) != len(chunks):
        return False
    bound, seen = None, 0
    while bound in following:
        bound, seen = following.pop(bound), seen + 1
        if bound is None:
            return not following and seen > 0
    return False
