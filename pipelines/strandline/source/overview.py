"""Overview of a source: its server, and its databases and collections with their counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from pymongo import errors as mongo

from strandline.source.client import AnyClient, ConnectionOptions, collection_infos, open_client, translate_errors
from strandline.source.deployment import Deployment, inspect_deployment
from strandline.source.errors import NOT_ALLOWED
from strandline.source.stages import SYSTEM_DATABASES

T = TypeVar("T")


@dataclass(frozen=True)
class CollectionSize:
    """A collection that can be captured.

    Args:
        documents: Number of documents, by the collection's metadata. None: the user may not count.
    """

    database: str
    name: str
    documents: int | None


@dataclass(frozen=True)
class SourceOverview:
    """A deployment, and what the user of the connection may see of it.

    Args:
        named: Database in the connection string. None: it names none.
        collections: The largest first. Views, time series and system collections are left out.
        denied: What the user may not list: ``databases``, or names of databases.
    """

    deployment: Deployment
    named: str | None
    collections: tuple[CollectionSize, ...]
    denied: tuple[str, ...]

    @property
    def databases(self) -> list[str]:
        """Databases that have a collection, the one with most documents first."""
        return list(dict.fromkeys(item.database for item in self.collections))


def look_at(uri: str, *, database: str | None = None) -> SourceOverview:
    """Connect to *uri*, and list what its user may see.

    I/O: connects; lists databases and collections; asks each collection for its count. A right that is missing is no
    error.

    Args:
        database: Database to look into, if the user may not list databases.

    Raises:
        ConfigurationError: The URI is wrong, the credentials are, or Strandline cannot read this server.
        RetriableError: No server answers.
    """
    with closing(open_client(ConnectionOptions(uri))) as client:
        deployment = inspect_deployment(client, uri)
        default = client.get_default_database(default="admin").name
        named = None if default in SYSTEM_DATABASES else default
        denied: list[str] = []
        sizes: list[CollectionSize] = []
        for name in _databases(client, [name for name in (database, named) if name], denied):
            sizes += _collections(client, name, denied)
    sizes.sort(key=lambda item: (-(item.documents or 0), item.database, item.name))
    return SourceOverview(deployment, named, tuple(sizes), tuple(denied))


def _databases(client: AnyClient, others: Sequence[str], denied: list[str]) -> list[str]:
    names = _if_allowed("listing databases", client.list_database_names)
    if names is None:
        denied.append("databases")
    return [name for name in dict.fromkeys([*(names or ()), *others]) if name not in SYSTEM_DATABASES]


def _collections(client: AnyClient, database: str, denied: list[str]) -> list[CollectionSize]:
    infos = _if_allowed("listing collections", lambda: collection_infos(client[database], type="collection"))
    if infos is None:
        denied.append(database)
    names = (str(info["name"]) for info in infos or ())
    return [
        CollectionSize(database, name, _if_allowed("counting", client[database][name].estimated_document_count))
        for name in names
        if not name.startswith("system.")
    ]


def _if_allowed(action: str, question: Callable[[], T]) -> T | None:
    """Return the answer to *question*. None: the user may not ask it. Other errors are raised, with the *action*."""
    with translate_errors(action):
        try:
            return question()
        except mongo.OperationFailure as error:
            if error.code not in NOT_ALLOWED:
                raise
            return None
