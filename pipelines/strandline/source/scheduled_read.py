"""Read of a whole collection that has no change stream: a view, a time series, or one that the filters leave out.

A view has no `_id` index and no order, so the read is one cursor. Memory is bounded by its replies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

from pymongo import errors as mongo

from strandline.errors import ConfigurationError
from strandline.source.client import (
    AnyClient,
    Collection,
    collection_infos,
    has_snapshot_reads,
    read_concern,
    server_version,
    translate_errors,
)
from strandline.source.errors import CredentialsRefused, SnapshotExpired
from strandline.source.field_stages import exclusion_projection
from strandline.source.ranges import ReadOptions, documents_of
from strandline.source.raw_reply import read_replies

_CANNOT_READ_PAST: Final = (72, 246)
"""InvalidOptions, SnapshotUnavailable: the server has no snapshot reads for this kind of collection."""


class ReadRefused(ConfigurationError):
    """A scheduled read cannot be done, or its documents cannot be used. Nothing was written.

    The collection is read again when it is due.
    """


@contextmanager
def refusals(collection: Collection) -> Iterator[None]:
    """Raise ReadRefused for an error that would repeat. Retriable errors and refused credentials stay as they are."""
    try:
        with translate_errors(f"reading {collection}", phase="scanning"):
            yield
    except (ReadRefused, CredentialsRefused):
        raise
    except SnapshotExpired as error:
        raise ReadRefused(
            error.message, next_step="set the server's minSnapshotHistoryWindowInSeconds longer than the read takes"
        ) from error
    except ConfigurationError as error:
        raise ReadRefused(error.message, next_step="correct the view, or capture.scheduled") from error


def read_whole(
    client: AnyClient, collection: Collection, at: tuple[int, int], options: ReadOptions
) -> tuple[bool, Iterator[list[bytes]]]:
    """Return True if the documents are as they were at cluster time *at*, and lists of the documents.

    False: the server cannot read this kind of collection at a cluster time, and the documents may be newer.
    I/O: reads the source. Lists and field rules: see `read_range`. Use it inside of `refusals`.

    Args:
        client: Opened with ``raw=True``.

    Raises:
        ReadRefused: There is no such collection.
        PyMongoError: The read failed.
    """
    database = client[collection.db]
    if not collection_infos(database, name=collection.name):
        raise ReadRefused(f"{collection} does not exist", next_step="create it, or correct capture.scheduled")
    find: dict[str, Any] = {"find": collection.name, "batchSize": options.fetch_size}
    if projection := exclusion_projection(options.fields, collection.db, collection.name):
        find["projection"] = projection
    is_exact = has_snapshot_reads(server_version(client))
    replies = read_replies(database, find | {"readConcern": read_concern(collection, at)}) if is_exact else iter(())
    try:
        first = next(replies, None)
    except mongo.OperationFailure as error:
        if error.code not in _CANNOT_READ_PAST:
            raise
        is_exact, first = False, None
    if not is_exact:
        later = Collection(collection.db, collection.name, None, snapshot_reads=False)
        replies = read_replies(database, find | {"readConcern": read_concern(later, at)})
    whole = replies if first is None else chain([first], replies)
    return is_exact, documents_of(whole, collection, options)
