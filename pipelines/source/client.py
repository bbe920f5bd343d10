"""Connections to MongoDB, and what is asked of a deployment before anything is captured. The source is only read."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pymongo
from bson import json_util
from bson.binary import UUID_SUBTYPE, Binary
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo import errors as mongo
from pymongo.database import Database

from pipelines.errors import ConfigurationError, RetriableError
from pipelines.model.deployment import SHARDED, deployment_identity
from pipelines.model.resume_token import ResumeToken
from pipelines.model.snapshot_policy import query_document
from pipelines.source.errors import Phase, as_strandline_error, classify
from pipelines.source.raw_event import RawEvent
from pipelines.source.stages import SYSTEM_DATABASES, Selection

AnyClient = MongoClient[Any]

_GOODBYE_SECONDS = 1.0
_TLS_REASON = re.compile(r"\[SSL: (\w+)\]")


@dataclass(frozen=True)
class ConnectionOptions:
    """How a client is opened; sent to executors as it is. The URI holds the secret: it never reaches a table, a log or an error.

    The three times hold where the URI names none of its own.
    """

    uri: str
    connect_timeout_ms: int = 10_000
    server_selection_timeout_ms: int = 10_000
    socket_timeout_ms: int = 0

    def __repr__(self) -> str:
        return "ConnectionOptions(uri=<secret>)"


@dataclass(frozen=True)
class Collection:
    """One captured collection and which incarnation of it."""

    db: str
    name: str
    uuid: str | None
    capped: bool = False
    """As far as it was asked for."""

    def __str__(self) -> str:
        return f"{self.db}.{self.name}"


def open_client(options: ConnectionOptions, *, raw: bool = False) -> AnyClient:
    """I/O: none yet; the client connects when it is first used.

    Args:
        raw: Documents stay the server's bytes (`RawEvent`); decoding would raise on what MongoDB stores without a word.

    Raises:
        ConfigurationError: The URI cannot be read (it is not quoted), or a certificate that it names cannot.
    """
    try:
        return MongoClient(
            options.uri,
            **_unnamed_options(options),
            document_class=RawEvent if raw else dict,
            tz_aware=True,
        )
    except OSError as error:  # of TLS, too: ssl.SSLError is one
        raise _tls_error(f"{error.strerror}: {error.filename}" if error.filename else type(error).__name__) from None
    except (mongo.ConfigurationError, mongo.InvalidURI, ValueError) as error:
        if isinstance(error.__cause__ or error.__context__, ssl.SSLError):
            raise _tls_error("certificate and key do not match, or the key's password is wrong") from None
        raise ConfigurationError(
            f"the MongoDB URI cannot be read ({type(error).__name__})",
            next_step="check STRANDLINE_SOURCE__URI: mongodb://user:password@host:27017/",
        ) from None


def hosts_of(uri: str) -> str:
    """Where a URI that `open_client` has taken leads; its credentials are left out."""
    authority = re.split("[/?]", uri.partition("://")[2])[0]
    return authority.rpartition("@")[2]


def _unnamed_options(options: ConnectionOptions) -> dict[str, Any]:
    """Those that the URI leaves open: the driver would let them go over what it says."""
    named = {part.partition("=")[0].lower() for part in re.split("[?&;]", options.uri)}
    ours = {
        "connectTimeoutMS": options.connect_timeout_ms,
        "serverSelectionTimeoutMS": options.server_selection_timeout_ms,
        "socketTimeoutMS": options.socket_timeout_ms or None,
        "appName": "strandline",
    }
    return {name: value for name, value in ours.items() if name.lower() not in named}


def close_client(client: AnyClient) -> None:
    """I/O: closes it, and takes little time to say goodbye to a server that does not answer."""
    with pymongo.timeout(_GOODBYE_SECONDS):
        client.close()


def _tls_error(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"no TLS connection to MongoDB can be made ({why})",
        next_step="check tlsCAFile and tlsCertificateKeyFile in STRANDLINE_SOURCE__URI",
    )


@contextmanager
def translate_errors(doing: str, *, phase: Phase = "opening") -> Iterator[None]:
    """Turn a driver's error into the one line a person reads, without its cause: that may quote the URI."""
    try:
        yield
    except mongo.PyMongoError as error:
        raise as_strandline_error(error, doing=doing, phase=phase) from None


@dataclass(frozen=True)
class Deployment:
    """What the server says of itself."""

    version: str
    set_name: str | None
    sharded: bool
    identity: str

    @property
    def records_images(self) -> bool:
        """Pre- and post-images exist since 6.0."""
        return self.shows_expanded_events

    @property
    def shows_expanded_events(self) -> bool:
        """``showExpandedEvents`` (and with it ``collectionUUID``) exists since 6.0."""
        return int(self.version.split(".")[0]) >= 6

    @property
    def splits_large_events(self) -> bool:
        """``$changeStreamSplitLargeEvent`` exists since 6.0.9."""
        return tuple(int(part) for part in self.version.split("-")[0].split(".")) >= (6, 0, 9)


def inspect(client: AnyClient) -> Deployment:
    """I/O: ``hello``, ``buildInfo`` and, where it is allowed, the replica set's id.

    Raises:
        RetriableError: Nobody answers.
        ConfigurationError: A standalone server, or wrong credentials.
    """
    with translate_errors("hello"):
        try:
            hello = client.admin.command("hello")
        except mongo.ServerSelectionTimeoutError as error:
            if (refused := _TLS_REASON.search(str(error))) is not None:
                raise _tls_error(refused[1]) from None
            raise RetriableError(
                "MongoDB does not answer at the configured address",
                next_step="check STRANDLINE_SOURCE__URI (does the server want tls=true?), the network and that mongod is up",
            ) from None
        sharded = hello.get("msg") == "isdbgrid"
        if not sharded and not hello.get("setName"):
            raise ConfigurationError(
                "MongoDB runs as a standalone server, and change streams need a replica set",
                next_step="start mongod with --replSet rs0 and run rs.initiate() once",
            )
        version = str(client.server_info()["version"])
    return Deployment(version, hello.get("setName"), sharded, _identity(client, hello))


def _identity(client: AnyClient, hello: dict[str, Any]) -> str:
    number = None
    with suppress(mongo.OperationFailure, KeyError):  # a privilege beyond `read`
        number = str(client.admin.command("replSetGetConfig")["config"]["settings"]["replicaSetId"])
    return deployment_identity(hello.get("setName") or SHARDED, number)


def operation_time(client: AnyClient) -> tuple[int, int]:
    """I/O: the primary's operation time (seconds, increment), whatever member the client reads from."""
    reply = _ping(client)
    time = reply.get("operationTime") or reply["$clusterTime"]["clusterTime"]
    return time.time, time.inc


def next_cluster_time(client: AnyClient) -> tuple[int, int]:
    """I/O: a cluster time (seconds, increment) after every event that is committed now. A member that lags has not come to it."""
    reply = _ping(client)
    known = [reply.get("operationTime"), reply.get("$clusterTime", {}).get("clusterTime")]
    time = max(time for time in known if time is not None)
    return time.time, time.inc + 1


def _ping(client: AnyClient) -> dict[str, Any]:
    """A command that names no read preference goes to the primary."""
    with translate_errors("ping"):
        return dict(client.admin.command("ping"))


def read_concern(collection: Collection, at: tuple[int, int]) -> dict[str, Any]:
    """To read *collection* as it was at cluster time *at*. Of a capped one no server reads the past (246): its documents are at least as
    new as *at*, and the events that made them newer come after."""
    if collection.capped:
        return {"level": "majority", "afterClusterTime": Timestamp(*at)}
    return {"level": "snapshot", "atClusterTime": Timestamp(*at)}


def read_command(database: Database[Any], command: dict[str, Any]) -> Iterator[Any]:
    """I/O: the documents that *command* finds, from a member that the URI's ``readPreference`` admits. Left alone, the driver would ask the
    primary."""
    yield from database.cursor_command(
        command, read_preference=database.read_preference, codec_options=database.codec_options
    )


def captured_collections(client: AnyClient, selection: Selection) -> list[Collection]:
    """I/O: the collections that exist now and are captured; views and time-series collections are not (they have no change stream)."""
    return sorted((collection for collection, _ in _captured(client, selection)), key=str)


def collections_without_images(client: AnyClient, selection: Selection) -> list[Collection]:
    """I/O: captured collections that record no pre- and post-images (``changeStreamPreAndPostImages``)."""
    found = (collection for collection, options in _captured(client, selection) if not _records_images(options))
    return sorted(found, key=str)


def _captured(client: AnyClient, selection: Selection) -> list[tuple[Collection, Mapping[str, Any]]]:
    """Captured collections with their options."""
    found = []
    with translate_errors("listing collections"):
        for database in [selection.database] if selection.database else client.list_database_names():
            if database in SYSTEM_DATABASES:
                continue
            for info in client[database].list_collections(filter={"type": "collection"}):
                if selection.admits(database, info["name"]):
                    found.append((Collection(database, info["name"], collection_uuid(info)), info.get("options", {})))
    return found


def _records_images(options: Mapping[str, Any]) -> bool:
    return bool(options.get("changeStreamPreAndPostImages", {}).get("enabled"))


def query_refusal(client: AnyClient, collection: Collection, query: str) -> str | None:
    """I/O: what the server says against *query* (JSON), which it only plans; None: nothing.

    Raises:
        RetriableError: Nobody answers.
    """
    find = {"find": collection.name, "filter": query_document(query)}
    with translate_errors(f"planning a query of {collection}"):
        try:
            client[collection.db].command({"explain": find, "verbosity": "queryPlanner"})
        except mongo.OperationFailure as error:
            if classify(error) == "retriable":
                raise
            return f"{type(error).__name__}, code {error.code}"  # the server's text quotes the values
    return None


def collection_uuid(info: Mapping[str, Any]) -> str | None:
    """Hex of the UUID that ``listCollections`` gives."""
    uuid = info.get("info", {}).get("uuid")
    return None if uuid is None else bytes(uuid if isinstance(uuid, bytes) else uuid.bytes).hex()


def find_collection(database: Database[Any], name: str) -> Collection | None:
    """I/O: the collection as it is now, or None where it is gone."""
    infos = list(database.list_collections(filter={"name": name}))
    return _found(database.name, infos[0]) if infos else None


def find_incarnation(client: AnyClient, planned: Collection) -> Collection | None:
    """I/O: the same collection (by its UUID) under the name that it has now, or None where it is gone."""
    if planned.uuid is None:
        return find_collection(client[planned.db], planned.name)
    infos = list(
        client[planned.db].list_collections(filter={"info.uuid": Binary(bytes.fromhex(planned.uuid), UUID_SUBTYPE)})
    )
    return _found(planned.db, infos[0]) if infos else None


def _found(database: str, info: Mapping[str, Any]) -> Collection:
    return Collection(database, info["name"], collection_uuid(info), bool(info.get("options", {}).get("capped")))


def token_json(token: Any) -> str:
    """A resume token document (raw or decoded) as canonical Extended JSON, ``_typeBits`` included."""
    return json_util.dumps(token, json_options=json_util.CANONICAL_JSON_OPTIONS)


def token_data(token: str) -> str:
    """``_data`` of a token in Extended JSON: the string that sorts in stream order. Raises as `ResumeToken.parse`."""
    return ResumeToken.parse(token).data
