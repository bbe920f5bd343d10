"""Documents read by `_id` at one cluster time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument

from strandline.model.bson import raw as rb
from strandline.model.field_rules import FieldPolicy
from strandline.source.client import (
    AnyClient,
    Collection,
    find_incarnation,
    operation_time,
    read_command,
    read_concern,
    translate_errors,
)
from strandline.source.field_stages import exclusion_projection
from strandline.source.fields import FieldRewriter
from strandline.source.stages import Selection

_MAX_DOCUMENTS = 1_000
"""Maximum `_id`s in one find command."""
_MAX_BYTES = 4 * 1024 * 1024
"""Maximum size of these `_id`s, in bytes."""


@dataclass(frozen=True)
class RereadDocument:
    """A document at the cluster time (*seconds*, *increment*); it includes every change up to that time.

    Without snapshot reads the document may be newer: see `read_concern`.
    """

    document: bytes
    collection: Collection
    seconds: int
    increment: int


def reread_document(
    client: AnyClient, collection: Collection, identifier: tuple[int, bytes], selection: Selection
) -> RereadDocument | None:
    """Read one document as it is now, from the current name of its collection, and apply the field rules.

    I/O: reads the source. Return None if the document or its collection was deleted (the change stream reports that
    too), or if *selection* does not capture the collection's current name.

    Args:
        client: Opened with ``raw=True``.
        identifier: BSON type and bytes of the document's `_id`.

    Raises:
        RetriableError: Calling again is safe.
    """
    at = operation_time(client)
    with translate_errors(f"looking for {collection}"):
        now = find_incarnation(client, collection)
    if now is None or not selection.admits(now.db, now.name):
        return None
    documents = read_documents_at(client, now, [identifier], at, selection.fields)
    return RereadDocument(documents[0], now, *at) if documents else None


def portions(identifiers: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Divide `_id`s into lists that fit into one find command. Pure."""
    portion: list[bytes] = []
    size = 0
    for identifier in identifiers:
        if portion and (len(portion) == _MAX_DOCUMENTS or size + len(identifier) > _MAX_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(identifier)
        size += len(identifier)
    if portion:
        yield portion


def read_documents_at(
    client: AnyClient,
    collection: Collection,
    identifiers: Sequence[tuple[int, bytes]],
    at: tuple[int, int],
    fields: FieldPolicy,
) -> list[bytes]:
    """Read documents as they were at cluster time *at* and apply the field rules.

    I/O: reads the source. Documents that did not exist at that time are left out; the order is arbitrary. Without
    snapshot reads the documents may be newer: see `read_concern`.

    Args:
        client: Opened with ``raw=True``.
        identifiers: BSON types and bytes of the `_id`s. Together they must fit into one command (16 MiB).

    Raises:
        RetriableError: Calling again is safe.
    """
    values = rb.document_of(rb.element(b"%d" % number, *value) for number, value in enumerate(identifiers))
    among = RawBSONDocument(rb.as_document(rb.DOCUMENT, rb.as_document(rb.ARRAY, values, b"$in"), b"_id"))
    find: dict[str, Any] = {"find": collection.name, "filter": among, "readConcern": read_concern(collection, at)}
    if projection := exclusion_projection(fields, collection.db, collection.name):
        find["projection"] = projection
    rules = FieldRewriter(fields).rules_for(collection.db, collection.name)
    with translate_errors(f"reading documents of {collection}", phase="scanning"):
        documents = [bytes(document.raw) for document in read_command(client[collection.db], find)]
    return documents if rules is None else [rules.rewrite_document(document) for document in documents]
