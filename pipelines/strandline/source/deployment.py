"""Version, topology and identity of a MongoDB deployment, asked before a capture starts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bson import ObjectId
from pymongo import errors as mongo

from strandline.errors import ConfigurationError
from strandline.model.deployment import SHARDED, deployment_identity
from strandline.source.client import (
    AnyClient,
    has_snapshot_reads,
    server_version,
    translate_errors,
    version_numbers,
)
from strandline.source.connection_errors import tls_error
from strandline.source.replies import entries_at, optional_answer, value_at
from strandline.source.unreachable import contact_error, unfit_error, without_set_error
from strandline.source.uri import options_error, options_in

_OLDEST = (4, 4)
_UPGRADE = "upgrade MongoDB to 5.0 or newer; strandline explain versions lists what each version can do"
_TLS_REASON = re.compile(r"\[SSL: (\w+)\]")


@dataclass(frozen=True)
class Deployment:
    """A MongoDB replica set or sharded cluster, as its server describes it."""

    version: str
    set_name: str | None
    """Name of the replica set; None for a sharded cluster."""
    sharded: bool
    identity: str
    """Text that tells one deployment from another, made from the replica set's name and id, or the cluster's id."""

    @property
    def records_images(self) -> bool:
        """Return True if collections can record pre- and post-images (MongoDB 6.0 and newer)."""
        return self.shows_expanded_events

    @property
    def shows_expanded_events(self) -> bool:
        """Return True if the server knows ``showExpandedEvents``, which adds ``collectionUUID`` (6.0 and newer)."""
        return self._numbers >= (6,)

    @property
    def splits_large_events(self) -> bool:
        """Return True if the server knows ``$changeStreamSplitLargeEvent`` (6.0.9 and newer)."""
        return self._numbers >= (6, 0, 9)

    @property
    def has_snapshot_reads(self) -> bool:
        """Return True if the server reads the past outside transactions (MongoDB 5.0 and newer)."""
        return has_snapshot_reads(self.version)

    @property
    def is_too_old(self) -> bool:
        """Return True if the server is older than the oldest version that the tests run on, 4.4."""
        return self._numbers < _OLDEST

    @property
    def _numbers(self) -> tuple[int, ...]:
        return version_numbers(self.version)


def inspect_deployment(client: AnyClient, uri: str = "") -> Deployment:
    """Read version, topology and identity of the deployment.

    I/O: reads ``hello``, ``buildInfo`` and, if the user may, the id of the replica set (``replSetGetConfig``) or of the
    cluster (``config.version``); writes nothing.

    Args:
        uri: URI of *client*. If no server is found, its addresses are asked one by one for the reason.

    Raises:
        RetriableError: No server answers, or none that the read preference allows.
        ConfigurationError: The server is a standalone, or too old, or the credentials are wrong. Or a server answers,
            and replica set, member name or read preference cannot be right.
    """
    with translate_errors("hello"):
        hello = _hello(client, uri)
        sharded, set_name = hello.get("msg") == "isdbgrid", value_at(hello, str, "setName")
        if not sharded and not set_name:
            raise without_set_error(hello)
        version = server_version(client)
        _check_read_preference(client, uri)
    deployment = Deployment(version, set_name, sharded, _identity(client, set_name))
    if deployment.is_too_old:
        raise ConfigurationError(f"MongoDB {version} is too old: Strandline reads 4.4 and newer", next_step=_UPGRADE)
    return deployment


def identity_of(client: AnyClient) -> str | None:
    """Return the identity of any deployment. None: a standalone server, which is no source.

    I/O: reads ``hello``, and as `inspect_deployment`.
    """
    with translate_errors("hello"):
        hello = dict(client.admin.command("hello"))
    set_name = value_at(hello, str, "setName")
    return _identity(client, set_name) if set_name or hello.get("msg") == "isdbgrid" else None


def _hello(client: AnyClient, uri: str) -> dict[str, Any]:
    try:
        return dict(client.admin.command("hello"))
    except mongo.ServerSelectionTimeoutError as error:
        if (refused := _TLS_REASON.search(str(error))) is not None:
            raise tls_error(refused[1]) from None
        raise contact_error(client, uri) from None
    except mongo.ConfigurationError as error:
        if _is_incompatible(client):
            raise ConfigurationError(
                "the MongoDB server is too old for the installed pymongo: they have no wire version in common",
                next_step=_UPGRADE,
            ) from None
        raise _refused_options(uri, error) from None


def _check_read_preference(client: AnyClient, uri: str) -> None:
    """Check that a member fits the read preference. I/O: sends it a ping."""
    try:
        client.admin.command("ping", read_preference=client.read_preference)
    except mongo.ServerSelectionTimeoutError:
        raise unfit_error(client) from None
    except mongo.ConfigurationError as error:
        raise _refused_options(uri, error) from None


def _refused_options(uri: str, error: mongo.ConfigurationError) -> Exception:
    """Return the error for options that the driver refuses when it connects."""
    names = options_in(uri, str(error))
    return options_error(names) if names else error


def _is_incompatible(client: AnyClient) -> bool:
    """Return True if the driver supports no wire version of a server that it found."""
    try:
        client.topology_description.check_compatible()
    except mongo.ConfigurationError:
        return True
    return False


def _identity(client: AnyClient, set_name: str | None) -> str:
    """Return the identity. The role ``read`` includes neither command."""

    def number_of_the_cluster() -> ObjectId | None:
        reply = client.config.command({"find": "version", "filter": {"_id": 1}, "limit": 1})
        return next(
            (value_at(document, ObjectId, "clusterId") for document in entries_at(reply, "cursor", "firstBatch")), None
        )

    def number_of_the_set() -> ObjectId | None:
        return value_at(client.admin.command("replSetGetConfig"), ObjectId, "config", "settings", "replicaSetId")

    number = optional_answer(number_of_the_set if set_name else number_of_the_cluster, "the id of the deployment")
    return deployment_identity(set_name or SHARDED, None if number is None else str(number))
