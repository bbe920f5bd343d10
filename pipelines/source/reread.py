"""One document read again by its `_id`, exactly as it is at one cluster time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from pipelines.model import raw_bson as rb
from pipelines.model.field_rules import FieldPolicy
from pipelines.source.client import AnyClient, Collection, asking, find_collection, operation_time
from pipelines.source.field_stages import exclusion_projection
from pipelines.source.fields import FieldRewriter


@dataclass(frozen=True)
class Reread:
    """A document at the cluster time *seconds*, *increment*; no event up to then is missing in it."""

    document: bytes
    collection: Collection
    seconds: int
    increment: int


def read_again(client: AnyClient, collection: Collection, identifier: tuple[int, bytes], fields: FieldPolicy) -> Reread | None:
    """I/O: the document, by the field rules; None where it is gone, or its collection is gone or another one by now: the change stream
    tells of that, too.

    Args:
        client: Opened with ``raw=True``.
        identifier: Type and bytes of its `_id`.

    Raises:
        RetriableError: Calling again is safe.
    """
    seconds, increment = operation_time(client)
    now = find_collection(client[collection.db], collection.name)
    if now is None or collection.uuid not in (None, now.uuid):
        return None
    kind, value = identifier
    equal = RawBSONDocument(rb.as_document(rb.DOCUMENT, rb.as_document(kind, value, b"$eq"), b"_id"))
    concern = {"level": "snapshot", "atClusterTime": Timestamp(seconds, increment)}
    find: dict[str, Any] = {"find": collection.name, "filter": equal, "limit": 1, "singleBatch": True, "readConcern": concern}
    if projection := exclusion_projection(fields, collection.db, collection.name):
        find["projection"] = projection
    with asking(f"reading a document of {collection}"):
        database = client[collection.db]
        found = next(iter(database.cursor_command(find, codec_options=database.codec_options)), None)
    if found is None:
        return None
    rules = FieldRewriter(fields).collection(collection.db, collection.name)
    raw = bytes(found.raw)
    return Reread(raw if rules is None else rules.document(raw), now, seconds, increment)
