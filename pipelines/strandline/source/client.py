"""Connections to MongoDB, read commands and collection lookups. Nothing here writes to the source."""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pymongo
from bson import json_util
from bson.binary import UUID_SUBTYPE, Binary
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo import errors as mongo
from pymongo.database import Database
from pymongo.synchronous import monitor

from strandline.errors import ConfigurationError
from strandline.model.resume_token import ResumeToken
from strandline.model.snapshot_policy import query_document
from strandline.source.connection_errors import check_uri, opening_error
from strandline.source.elections import ElectionListener
from strandline.source.errors import NOT_ALLOWED, UNAUTHORIZED, Phase, as_strandline_error, classify
from strandline.source.raw_event import RawEvent
from strandline.source.replies import value_at
from strandline.source.uri import for_the_driver

AnyClient = MongoClient[Any]

_CLOSE_SECONDS = 1.0
_NUMBERS = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True)
class ConnectionOptions:
    """URI and timeouts of a MongoDB client. Executors get a copy.

    The URI holds the password, so it never reaches a table, a log or an error.
    A timeout applies only if the URI does not set the same option.
    """

    uri: str
    connect_timeout_ms: int = 10_000
    server_selection_timeout_ms: int = 10_000
    socket_timeout_ms: int = 0
    """0: no timeout."""

    def __repr__(self) -> str:
        return "ConnectionOptions(uri=<secret>)"


NO_TIME_LIMIT: Final = {"maxTimeMS": 2**31 - 1}
"""Longest time limit of a command, 24 days. Without one, the cluster parameter defaultMaxTimeMS (8.0) ends a read."""


@dataclass(frozen=True)
class Collection:
    """A captured collection and its incarnation."""

    db: str
    name: str
    uuid: str | None
    """Incarnation, in hex. None: the server gave no UUID."""
    snapshot_reads: bool = True
    """False: the server cannot read this collection as it was at a cluster time. Set by `find_collection` and
    `find_incarnation`; other lookups leave it True."""
    has_collation: bool = False
    """True: the server orders texts by a collation. Set as `snapshot_reads`."""

    def __str__(self) -> str:
        return f"{self.db}.{self.name}"


def open_client(
    options: ConnectionOptions, *, raw: bool = False, elected: Callable[[], None] | None = None
) -> AnyClient:
    """Create a client. It connects when it is first used.

    I/O: asks DNS for the records of a ``mongodb+srv`` URI.

    Args:
        raw: Keep documents as the server's bytes (`RawEvent`). Decoding fails on damaged BSON, which MongoDB stores
            without an error.
        elected: Called for each election of a new primary that the client sees.

    Raises:
        ConfigurationError: The URI, or a certificate file in the URI, cannot be read; the client's certificate has
            expired; or a package is missing. The message does not quote the URI.
        RetriableError: The records of a ``mongodb+srv`` URI were not found.
    """
    check_uri(options.uri)
    try:
        return MongoClient(
            for_the_driver(options.uri),
            **_unnamed_options(options),
            document_class=RawEvent if raw else dict,
            tz_aware=True,
            event_listeners=[] if elected is None else [ElectionListener(elected)],
        )
    except Exception as error:  # noqa: BLE001  # why: whatever the driver raises here is about the URI
        raise opening_error(options.uri, error) from None


def _unnamed_options(options: ConnectionOptions) -> dict[str, Any]:
    """Return client options that the URI does not set: the driver would prefer them to the URI's."""
    named = {part.partition("=")[0].lower() for part in re.split("[?&;]", options.uri)}
    ours = {
        "connectTimeoutMS": options.connect_timeout_ms,
        "serverSelectionTimeoutMS": options.server_selection_timeout_ms,
        "socketTimeoutMS": options.socket_timeout_ms or None,
        "appName": "strandline",
    }
    return {name: value for name, value in ours.items() if name.lower() not in named}


def close_client(client: AnyClient) -> None:
    """Close the client, within a second even if the server does not answer."""
    with pymongo.timeout(_CLOSE_SECONDS):
        client.close()


def end_without_waiting() -> None:
    """Let the process end at once. Otherwise the driver waits for its threads, which sleep for up to half a second.

    For a process whose clients are closed. The function that waits is private: a driver without it is left as it is.
    """
    if (wait := getattr(monitor, "_shutdown_resources", None)) is not None:
        atexit.unregister(wait)


@contextmanager
def translate_errors(doing: str, *, phase: Phase = "opening") -> Iterator[None]:
    """Raise a driver's error as a `StrandlineError` of one line.

    The driver's error is not chained: its text may quote the URI.

    Args:
        doing: Name of the operation, for the message.
        phase: See `classify`.
    """
    try:
        yield
    except mongo.PyMongoError as error:
        raise as_strandline_error(error, doing=doing, phase=phase) from None


def operation_time(client: AnyClient) -> tuple[int, int]:
    """Return the primary's operation time (seconds, increment), even if the client reads from secondaries.

    I/O: sends one ping, and on a sharded cluster another command before it.
    """
    reply = _ping(client)
    time = reply.get("operationTime") or reply["$clusterTime"]["clusterTime"]
    return time.time, time.inc


def next_cluster_time(client: AnyClient) -> tuple[int, int]:
    """Return a cluster time (seconds, increment) later than every event that is committed now.

    I/O: as `operation_time`. A lagging secondary has not reached this time yet.
    """
    reply = _ping(client)
    times = [reply.get("operationTime"), reply.get("$clusterTime", {}).get("clusterTime")]
    time = max(time for time in times if time is not None)
    return time.time, time.inc + 1


def _ping(client: AnyClient) -> dict[str, Any]:
    """Ping the primary: a command without a read preference goes there.

    A mongos answers with the newest time that it knows, which may be older than an event of a shard. `listDatabases`
    asks every shard, and each answer tells the mongos the time of its shard.
    """
    with translate_errors("ping"):
        if client.is_mongos:
            client.admin.command({"listDatabases": 1, "nameOnly": True})
        return dict(client.admin.command("ping"))


def read_concern(collection: Collection, at: tuple[int, int]) -> dict[str, Any]:
    """Return the read concern that reads *collection* as it was at cluster time *at*.

    Without snapshot reads it is read at *at* or later; the change events that made its documents newer come after *at*.
    """
    if not collection.snapshot_reads:
        return {"level": "majority", "afterClusterTime": Timestamp(*at)}
    return {"level": "snapshot", "atClusterTime": Timestamp(*at)}


def read_command(database: Database[Any], command: dict[str, Any]) -> Iterator[Any]:
    """Run a read command and yield its documents.

    I/O: reads from a member that the URI's ``readPreference`` allows. Without one, the driver would ask the primary.
    """
    cursor = database.cursor_command(
        command | NO_TIME_LIMIT, read_preference=database.read_preference, codec_options=database.codec_options
    )
    cursor.batch_size(command.get("batchSize", 0))  # of later replies; the server reads it in the first command only
    yield from cursor


def query_error(client: AnyClient, collection: Collection, query: str) -> str | None:
    """Return the error with which the server rejects *query*; None if it accepts the query, or may not be asked.

    I/O: the server plans the query and does not run it.

    Args:
        query: Filter as JSON.

    Raises:
        RetriableError: No server answers.
    """
    # With the hint of the read itself: a server with notablescan refuses a plan without an index.
    find = {"find": collection.name, "filter": query_document(query), "hint": {"_id": 1}}
    with translate_errors(f"planning a query of {collection}"):
        try:
            client[collection.db].command({"explain": find, "verbosity": "queryPlanner"})
        except mongo.OperationFailure as error:
            if classify(error) == "retriable":
                raise
            if error.code in NOT_ALLOWED:  # nothing is known of the query; the read itself tells
                return None
            return f"{type(error).__name__}, code {error.code}"  # the server's text quotes values of the query
    return None


def collection_uuid(info: Mapping[str, Any]) -> str | None:
    """Return the UUID of a ``listCollections`` entry in hex; None if it has none."""
    uuid = value_at(info, bytes, "info", "uuid") or value_at(info, UUID, "info", "uuid")
    return None if uuid is None else bytes(uuid if isinstance(uuid, bytes) else uuid.bytes).hex()


def collection_infos(database: Database[Any], **conditions: Any) -> list[Mapping[str, Any]]:
    """Return the entries of ``listCollections`` that have the values *wanted*.

    A user without the privilege ``listCollections`` gets the names and types of the collections that they may read.
    """
    try:
        return list(database.list_collections(filter=conditions))
    except mongo.OperationFailure as error:
        if error.code != UNAUTHORIZED or not conditions.keys() <= {"name", "type"}:
            raise
        return list(database.list_collections(filter=conditions, nameOnly=True, authorizedCollections=True))


def find_collection(database: Database[Any], name: str) -> Collection | None:
    """Return the collection that has this name now; None if there is none. I/O: reads ``listCollections``.

    A view or a time-series collection is none.
    """
    infos = collection_infos(database, name=name, type="collection")
    return _collection_of(database, infos[0]) if infos else None


def find_incarnation(client: AnyClient, planned: Collection) -> Collection | None:
    """Return the collection with the UUID of *planned* under its current name; None if it was dropped.

    If the UUID is gone, the collection that has the planned name now is returned, with its other UUID: the planned one
    was moved (``movePrimary``, resharding), or dropped and created again. A read of it is right in both cases.

    I/O: reads ``listCollections``. Without a UUID it is found by its name.
    """
    database = client[planned.db]
    if planned.uuid is not None:
        uuid = Binary(bytes.fromhex(planned.uuid), UUID_SUBTYPE)
        if infos := collection_infos(database, **{"info.uuid": uuid, "type": "collection"}):
            return _collection_of(database, infos[0])
    return find_collection(database, planned.name)


def _collection_of(database: Database[Any], info: Mapping[str, Any]) -> Collection:
    capped = bool(value_at(info, object, "options", "capped"))
    snapshot_reads = has_snapshot_reads(server_version(database.client), capped=capped)
    has_collation = value_at(info, object, "options", "collation") is not None
    return Collection(database.name, info["name"], collection_uuid(info), snapshot_reads, has_collation)


def server_version(client: AnyClient) -> str:
    """Return the server's version, such as ``6.0.5``. I/O: reads ``buildInfo``.

    Raises:
        ConfigurationError: The answer holds no version.
    """
    version = value_at(client.server_info(), str, "version")
    if version is None or not version_numbers(version):
        raise ConfigurationError(
            "the server does not tell its version (buildInfo)", next_step="check what STRANDLINE_SOURCE__URI leads to"
        )
    return version


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of *version*: (6, 0, 9) for ``6.0.9-rc0``. Empty: there is none."""
    return tuple(map(int, match[0].split("."))) if (match := _NUMBERS.match(version)) else ()


def has_snapshot_reads(version: str, *, capped: bool = False) -> bool:
    """Return True if the server reads the past outside transactions (MongoDB 5.0 and newer).

    Args:
        capped: The collection is capped. Before 8.0 such a read ends with code 246 (measured up to 6.0.27).
            Source for 8.0: its release notes, "Read Concern on Capped Collections". Not seen here.
    """
    return version_numbers(version) >= ((8,) if capped else (5,))


def token_json(token: Any) -> str:
    """Return a resume token document (raw or decoded) as canonical Extended JSON, with ``_typeBits``."""
    return json_util.dumps(token, json_options=json_util.CANONICAL_JSON_OPTIONS)


def token_data(token: str) -> str:
    """Return ``_data`` of a token in Extended JSON: the string that sorts in stream order.

    Raises:
        ResumePointLost: The token cannot be read (see `ResumeToken.parse`).
    """
    return ResumeToken.parse(token).data
