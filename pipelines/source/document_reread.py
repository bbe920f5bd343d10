"""Documents read again by their `_id`s, exactly as they are at one cluster time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument

from pipelines.model.bson import raw as rb
from pipelines.model.field_rules import FieldPolicy
from pipelines.source.client import (
    AnyClient,
    Collection,
    find_incarnation,
    operation_time,
    read_command,
    read_concern,
    translate_errors,
)
from pipelines.source.field_stages import exclusion_projection
from pipelines.source.fields import FieldRewriter
from pipelines.source.stages import Selection


@dataclass(frozen=True)
class Reread:
    """A document at the cluster time *seconds*, *increment*, or later where its collection is capped; no event up to then is missing in
    it."""

    document: bytes
    collection: Collection
    seconds: int
    increment: int


def read_again(
    client: AnyClient, collection: Collection, identifier: tuple[int, bytes], selection: Selection
) -> Reread | None:
    """I/O: the document, by the field rules, under the name that its collection has now. None where it is gone, or its collection is gone,
    which the change stream tells, too; or where the filters leave that name out.

    Args:
        client: Opened with ``raw=True``.
        identifier: Type and bytes of its `_id`.

    Raises:
        RetriableError: Calling again is safe.
    """
    at = operation_time(client)
    with translate_errors(f"looking for {collection}"):
        now = find_incarnation(client, collection)
    if now is None or not selection.admits(now.db, now.name):
        return None
    found = read_at(client, now, [identifier], at, selection.fields)
    return Reread(found[0], now, *at) if found else None


def read_at(
    client: AnyClient,
    collection: Collection,
    identifiers: Sequence[tuple[int, bytes]],
    at: tuple[int, int],
    fields: FieldPolicy,
) -> list[bytes]:
    """I/O: those of the documents that were there at cluster time *at*, by the field rules, in any order. Those of a capped collection may
    be newer: see `read_concern`.

    Args:
        client: Opened with ``raw=True``.
        identifiers: Types and bytes of their `_id`s; together no more than fit into one command (16 MiB).

    Raises:
        RetriableError: Calling again is safe.
    """
    values = rb.document_of(rb.element(b"%d" % number, *value) for number, value in enumerate(identifiers))
    among = RawBSONDocument(rb.as_document(rb.DOCUMENT, rb.as_document(rb.ARRAY, values, b"$in"), b"_id"))
    find: dict[str, Any] = {"find": collection.name, "filter": among, "readConcern": read_concern(collection, at)}
    if projection := exclusion_projection(fields, collection.db, collection.name):
        find["projection"] = projection
    rules = FieldRewriter(fields).collection(collection.db, collection.name)
    with translate_errors(f"reading documents of {collection}"):
        found = [bytes(document.raw) for document in read_command(client[collection.db], find)]
    return found if rules is None else [rules.document(document) for document in found]
