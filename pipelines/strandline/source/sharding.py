"""Sharded collections in which an `_id` may not be unique: each shard has its own `_id` index.

`_id`s are unique if the shard key is `_id`, ranged or hashed: then one shard holds all documents with an `_id`.
Source: mongodb.com/docs/manual/core/sharding-shard-key (unique indexes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pymongo import errors as mongo

from strandline.errors import ConfigurationError
from strandline.model.bson import raw as rb
from strandline.source.client import AnyClient, Collection, translate_errors
from strandline.source.errors import classify
from strandline.source.replies import document_at, value_at

_NEXT_STEP = (
    "set capture.sharded_ids_are_unique: true if the application makes unique _ids, such as ObjectIds; "
    "or leave the collection out"
)

ShardKeys = Mapping[str, Sequence[str] | None]
"""Fields of the shard key of each sharded ``db.collection``; None if the user may not read them."""


def shard_keys(client: AnyClient, collections: Iterable[Collection]) -> ShardKeys:
    """Return the shard keys of those *collections* that are sharded.

    I/O: reads ``config.collections``, or, if the user may not, ``collStats`` of each collection. A collection that the
    user may not ask about counts as sharded.

    Args:
        client: Connected to a mongos.
    """
    names = {str(collection): collection for collection in collections}
    with translate_errors("reading the shard keys"):
        try:
            entries = list(
                client.config.collections.find({"_id": {"$in": list(names)}, "dropped": {"$ne": True}}, {"key": 1})
            )
        except mongo.OperationFailure as error:
            if classify(error) == "retriable":
                raise
            return dict.fromkeys(name for name, collection in names.items() if _may_be_sharded(client, collection))
    keys = {str(entry.get("_id")): document_at(entry, "key") for entry in entries}
    return {name: None if key is None else list(key) for name, key in keys.items()}


def _may_be_sharded(client: AnyClient, collection: Collection) -> bool:
    try:
        statistics = client[collection.db].command("collStats", collection.name)
    except mongo.OperationFailure as error:
        if classify(error) == "retriable":
            raise
        return True
    return value_at(statistics, bool, "sharded") is not False


def check_shard_keys(keys: ShardKeys) -> None:
    """Raise ConfigurationError if a collection may hold the same `_id` on several shards. Pure."""
    unsafe = sorted(name for name, fields in keys.items() if fields is None or list(fields) != ["_id"])
    if not unsafe:
        return
    first = unsafe[0]
    more = f" (and of {len(unsafe) - 1} more collections)" if len(unsafe) > 1 else ""
    fields = keys[first]
    key = (
        "a shard key that this user may not read in config.collections"
        if fields is None
        else f"the shard key {', '.join(fields)}"
    )
    raise ConfigurationError(
        f"an _id of {first}{more} may exist on several shards: the collection has {key}", next_step=_NEXT_STEP
    )


def check_document_key(event: bytes) -> bytes:
    """Return *event* unchanged if its document key is `_id` alone. Pure.

    Raises:
        ConfigurationError: The document key holds other fields of a shard key.
    """
    span = rb.field(event, b"documentKey")
    fields = (
        [name.decode("utf-8", "replace") for _, name, _, _ in rb.elements(event, span[1])] if span is not None else []
    )
    others = [name for name in dict.fromkeys(fields) if name != "_id"]
    if others:
        namespace = rb.field(event, b"ns")
        parts = (
            [rb.text(event, value, end) for _, _, value, end in rb.elements(event, namespace[1])]
            if namespace
            else ["?"]
        )
        raise ConfigurationError(
            f"an _id of {'.'.join(parts)} may exist on several shards: its shard key holds {', '.join(others)}; "
            "nothing has landed from this event on",
            next_step=_NEXT_STEP,
        )
    return event
