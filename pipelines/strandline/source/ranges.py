"""Snapshot chunks as ranges of `_id`, and the read of one chunk at one cluster time.

Index bounds (``min``/``max`` with a hint) follow the server's order across BSON types. ``$gte``/``$lt`` would silently
skip every other type. The first chunk has no lower bound and the last no upper bound, so all chunks cover every `_id`.
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

from strandline.errors import ConfigurationError, RetriableError
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.field_rules import FieldPolicy
from strandline.model.snapshot_policy import Pace
from strandline.source.client import AnyClient, Collection, find_collection, read_concern, translate_errors
from strandline.source.field_stages import exclusion_projection
from strandline.source.fields import FieldRewriter
from strandline.source.pacing import paced
from strandline.source.raw_reply import read_replies

_TYPE = 4
"""Offset of the value's BSON type in ``{_id: value}``."""
_MAX_KEY = 0x7F
_MIN_AND_MAX_KEY = (0xFF, _MAX_KEY)
_LIST_ROWS = 4_000
_LIST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Range:
    """Range ``[lower, upper)`` in the server's `_id` order. A bound is a BSON document ``{_id: value}``; None: open."""

    lower: bytes | None = None
    upper: bytes | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"lower": _encoded(self.lower), "upper": _encoded(self.upper)}

    @staticmethod
    def from_json(bounds: Mapping[str, str | None]) -> Range:
        return Range(_decoded(bounds["lower"]), _decoded(bounds["upper"]))


def _encoded(bound: bytes | None) -> str | None:
    return None if bound is None else b64encode(bound).decode("ascii")


def _decoded(bound: str | None) -> bytes | None:
    return None if bound is None else b64decode(bound)


def is_valid_bound(identifier: bytes) -> bool:
    """Return True if ``{_id: value}`` can separate two ranges.

    MinKey and MaxKey are legal `_id`s but no valid bounds: the server rejects a range that ends at MinKey.
    """
    return identifier[_TYPE] not in _MIN_AND_MAX_KEY


def ranges_between(bounds: Sequence[bytes]) -> list[Range]:
    """Return the ranges that *bounds* make; together they cover all `_id`s.

    Invalid bounds are dropped. Equal neighbours count once (``1`` and ``1.0`` are the same `_id`).

    Args:
        bounds: Documents ``{_id: value}``, sorted by the server.
    """
    distinct: list[bytes] = []
    for bound in bounds:
        if is_valid_bound(bound) and (not distinct or document_merge_key(distinct[-1]) != document_merge_key(bound)):
            distinct.append(bound)
    lowers: list[bytes | None] = [None, *distinct]
    uppers: list[bytes | None] = [*distinct, None]
    return [Range(lower, upper) for lower, upper in zip(lowers, uppers, strict=True)]


@dataclass(frozen=True)
class ReadOptions:
    """Options for the read of a range: field rules, filter and fetch size."""

    fields: FieldPolicy = FieldPolicy()
    """Field rules. The server does not send excluded fields."""
    query: Mapping[str, Any] = field(default_factory=dict)
    """Filter for documents. Empty: all documents."""
    fetch_size: int = _LIST_ROWS
    """Maximum documents in one reply of the server."""
    pace: Pace | None = None
    """Pace of the read. None: as fast as possible."""


def read_range(
    client: AnyClient, collection: Collection, chunk: Range, at: tuple[int, int], options: ReadOptions = ReadOptions()
) -> Iterator[list[bytes]]:
    """Read the documents of one range as they were at cluster time *at*, with the field rules applied.

    I/O: reads the source. Yields lists of at most 4,000 documents and about 4 MiB, which bounds the memory of a worker.
    Without snapshot reads the documents may be newer: see `read_concern`.

    Args:
        client: Opened with ``raw=True``.

    Raises:
        RetriableError: The read failed, for example with SnapshotTooOld, or the collection has another UUID now. Look
            for the collection, and read the chunk again at a new cluster time.
        ConfigurationError: The server rejects the read.
    """
    collection = _same_incarnation(client, collection)
    with _read_errors(client, collection):
        yield from documents_of(_replies(client, collection, chunk, at, options), collection, options)
    _same_incarnation(client, collection)


def documents_of(replies: Iterator[list[bytes]], collection: Collection, options: ReadOptions) -> Iterator[list[bytes]]:
    """Yield the documents of *replies* in lists, as `read_range` does: paced, and with the field rules applied."""
    rules = FieldRewriter(options.fields).rules_for(collection.db, collection.name)
    documents: list[bytes] = []
    size = 0
    for reply in replies if options.pace is None else paced(replies, options.pace):
        for start in range(0, len(reply), _LIST_ROWS):
            some = reply[start : start + _LIST_ROWS]
            if rules is not None:
                some = [rules.rewrite_document(document) for document in some]
            more = sum(map(len, some))
            if documents and (len(documents) + len(some) > _LIST_ROWS or size + more > _LIST_BYTES):
                yield documents
                documents, size = [], 0
            documents += some
            size += more
    yield documents


def check_range(
    client: AnyClient, collection: Collection, chunk: Range, at: tuple[int, int], options: ReadOptions
) -> None:
    """Check that `read_range` can read the range: read the first document, and only the `_id`s of the others.

    Raises:
        StrandlineError: The same errors as `read_range`.
    """
    collection = _same_incarnation(client, collection)
    with _read_errors(client, collection):
        next(_replies(client, collection, chunk, at, options), None)
        for _ in _replies(client, collection, chunk, at, options, {"_id": 1}):
            pass


@contextmanager
def _read_errors(client: AnyClient, collection: Collection) -> Iterator[None]:
    """Translate read errors. If the server rejects the read because the collection was dropped, say that instead."""
    try:
        with translate_errors(f"reading {collection}", phase="scanning"):
            yield
    except ConfigurationError:
        _same_incarnation(client, collection)
        raise


def _replies(
    client: AnyClient,
    collection: Collection,
    chunk: Range,
    at: tuple[int, int],
    options: ReadOptions,
    projection: Mapping[str, Any] | None = None,
) -> Iterator[list[bytes]]:
    """Read the documents of one range, reply by reply. *projection* None: all fields that no rule excludes."""
    database = client[collection.db]
    find = _find_at(collection, chunk, at) | {"batchSize": options.fetch_size}
    if options.query:
        find["filter"] = options.query
    if projection := projection or exclusion_projection(options.fields, collection.db, collection.name):
        find["projection"] = projection
    reply: list[bytes] = []
    for reply in read_replies(database, find):
        yield reply
    if chunk.lower is not None and chunk.upper is None and (not reply or reply[-1][_TYPE] != _MAX_KEY):
        # An open upper bound excludes MaxKey, which is a legal `_id`; in a clustered collection it includes MaxKey.
        is_max_key = {"_id": MaxKey()}
        filtered = {"$and": [is_max_key, options.query]} if options.query else is_max_key
        last = {key: find[key] for key in find if key not in ("min", "hint")} | {"filter": filtered}
        yield from read_replies(database, last)


def _find_at(collection: Collection, chunk: Range, at: tuple[int, int]) -> dict[str, Any]:
    command: dict[str, Any] = {"find": collection.name, "hint": {"_id": 1}}
    if chunk.lower is not None:
        command["min"] = RawBSONDocument(chunk.lower)
    if chunk.upper is not None:
        command["max"] = RawBSONDocument(chunk.upper)
    elif chunk.lower is not None:
        command["sort"] = {"_id": 1}  # `_replies` looks for MaxKey at the end, and a mongos does not sort by itself
    return command | {"readConcern": read_concern(collection, at)}


def _same_incarnation(client: AnyClient, collection: Collection) -> Collection:
    with translate_errors(f"looking for {collection}"):
        now = find_collection(client[collection.db], collection.name)
    if now is None or now.uuid != collection.uuid:
        raise RetriableError(
            f"{collection} was dropped, renamed or moved while it was read",
            next_step="strandline capture: it looks for the collection again, and continues the snapshot",
        )
    return now


class ChunkManifest:
    """Counts and digest of the documents that one chunk read. The task writes them together with the rows.

    The digest does not depend on how the documents were batched.
    """

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


def covers_all_ids(chunks: Sequence[Range]) -> bool:
    """Return True if *chunks*, in any order, cover MinKey to MaxKey without a hole or an overlap."""
    following = {chunk.lower: chunk.upper for chunk in chunks}
    if len(following) != len(chunks):
        return False
    bound, seen = None, 0
    while bound in following:
        bound, seen = following.pop(bound), seen + 1
        if bound is None:
            return not following and seen > 0
    return False
