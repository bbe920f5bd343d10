"""A MongoDB server that asks for credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from strandline.source.mongod import EmbeddedMongod

Client = MongoClient[dict[str, Any]]


@contextmanager
def guarded_server(folder: Path, password: str, **more: Any) -> Iterator[tuple[EmbeddedMongod, Client]]:
    """Yield a server with the user ``root``, and a client of this user.

    Args:
        folder: Folder in which the server's key is made.
        more: Arguments of `EmbeddedMongod`.
    """
    key = folder / "key"
    key.write_text("c3RyYW5kbGluZQ==", encoding="ascii")
    key.chmod(0o600)
    with EmbeddedMongod(extra_args=["--auth", "--keyFile", str(key)], **more) as server:
        with Client(server.uri) as first:  # as long as there is no user, whoever comes from this machine may make one
            first.admin.command("createUser", "root", pwd=password, roles=["root"])
        with Client(uri_of(server, "root", password)) as root:
            yield server, root


def uri_of(server: EmbeddedMongod, user: str, password: str, database: str = "") -> str:
    uri = server.uri.replace("mongodb://", f"mongodb://{user}:{password}@").replace("/?", f"/{database}?")
    return f"{uri}&authSource=admin"
