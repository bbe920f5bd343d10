"""``control.erasures``: documents that were erased, by a keyed hash of their MERGE keys."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from strandline.io.tables.table_store import TableStore
from strandline.model.namespaces import Namespace
from strandline.model.query import Query
from strandline.model.table_schemas import ERASURES, ERASURES_DDL
from strandline.model.tables import TableName

_KEY: Final = "strandline.erasure_key"
_KEY_BYTES: Final = 32
_BLOCK_BYTES: Final = 64
_AT_ONCE: Final = 1_000


@dataclass(frozen=True)
class Request:
    """A request to erase documents."""

    id: str
    source: str
    namespace: Namespace
    names: frozenset[Namespace]
    """Names of the collection before and after renames, with its own."""
    position: str
    at: datetime
    by: str
    why: str | None


@dataclass(frozen=True)
class Erasures:
    """Reader and writer of the table."""

    tables: TableStore

    def add(self, request: Request, keys: Iterable[str]) -> None:
        """I/O: inserts a row for each of *keys*, which is not hidden yet. Creates the table. Idempotent."""
        self.tables.create_table(ERASURES, ERASURES_DDL, comment="Documents that were erased")
        self.tables.add_missing_columns(ERASURES, ERASURES_DDL)
        if _KEY not in self.tables.properties(ERASURES):
            self.tables.set_properties(ERASURES, {_KEY: secrets.token_hex(_KEY_BYTES)})
        secret = self.secret()
        common = {
            "id": request.id,
            "source": request.source,
            "db": request.namespace.db,
            "collection": request.namespace.collection,
            "names": json.dumps(sorted(request.names)),
            "position": request.position,
            "requested_at": request.at,
            "by": request.by,
            "why": request.why,
            **dict.fromkeys(("hidden_at", "tables", "gone_at", "again_at")),
        }
        rows = [common | {"key_hash": key_hash(key, secret)} for key in keys]
        for start in range(0, len(rows), _AT_ONCE):
            self.tables.insert_rows(ERASURES, ERASURES_DDL, rows[start : start + _AT_ONCE], "id", "key_hash")

    def hide(self, identifier: str, at: datetime, versions: Mapping[TableName, int]) -> None:
        """I/O: stores that the documents are hidden, and the first version without them of each table."""
        tables = json.dumps({str(table): version for table, version in versions.items()})
        self.tables.update_rows(ERASURES, {"hidden_at": at, "tables": tables}, ("id", "=", identifier))

    def finish(self, identifier: str, at: datetime) -> None:
        """I/O: stores that no file holds the documents any more."""
        self.tables.update_rows(ERASURES, {"gone_at": at}, ("id", "=", identifier))

    def note_again(self, source: str, namespace: Namespace, hashes: Collection[str], at: datetime) -> None:
        """I/O: stores that the source has brought documents of a collection again (*hashes* of keys; not empty)."""
        its = ("source", "=", source), ("db", "=", namespace.db), ("collection", "=", namespace.collection)
        new = ("key_hash", "in", hashes), ("again_at", "is null", None)
        self.tables.update_rows(ERASURES, {"again_at": at}, *its, *new)

    def unfinished(self, source: str, keys: Iterable[str], step: str) -> set[str]:
        """I/O: returns those of *keys* with an erasure that has not done a *step*: ``hidden_at`` or ``gone_at``."""
        if _KEY not in (self.tables.properties(ERASURES) if self.tables.exists(ERASURES) else {}):
            return set()
        rows = self.tables.query(
            Query(ERASURES).where(("source", "=", source), (step, "is null", None)).select("key_hash")
        )
        hashes, secret = {row["key_hash"] for row in rows}, self.secret()
        return {key for key in keys if key_hash(key, secret) in hashes}

    def secret(self) -> bytes:
        """I/O: returns the key of the hashes, from the table's properties. The table exists."""
        return bytes.fromhex(self.tables.properties(ERASURES)[_KEY])

    def all(self, source: str) -> list[dict[str, Any]]:
        """I/O: returns a row for each erasure of *source*, oldest first: the columns that its documents share, and
        their number as ``documents``, and as ``again`` the number of those that the source has brought again."""
        if not self.tables.exists(ERASURES):
            return []
        request = ("id", "db", "collection", "names", "position", "requested_at", "by", "why")
        rows = Query(ERASURES).where(("source", "=", source)).group(*request, "hidden_at", "tables", "gone_at")
        rows = rows.aggregate(documents=("count", "key_hash"), again=("count", "again_at"))
        return sorted(self.tables.query(rows), key=lambda row: row["requested_at"])


@dataclass
class ErasedDocuments:
    """Documents of a source that were erased. A capture asks for each old event whether it may land."""

    tables: TableStore
    source: str
    newest: str = field(default="", init=False)
    """Position of the newest erasure. Events after it may land. Empty: there is none."""
    _version: int = field(default=-1, init=False)
    _secret: bytes = field(default=b"", init=False, repr=False)
    _limits: dict[Namespace, dict[str, str]] = field(default_factory=dict, init=False, repr=False)
    """Position of the last erasure, by collection and hash of the key."""

    def refresh(self) -> None:
        """I/O: asks for the version of the table, and reads it if the version has changed."""
        now = self.tables.look(ERASURES)
        if now is None or now[0] == self._version or _KEY not in now[1]:  # without the key, the table has no row yet
            return
        self._limits = {}
        columns = ("db", "collection", "names", "key_hash", "position")
        for row in self.tables.query(Query(ERASURES).where(("source", "=", self.source)).select(*columns)):
            for name in json.loads(row["names"]):
                limits = self._limits.setdefault(Namespace(*name), {})
                limits[row["key_hash"]] = max(row["position"], limits.get(row["key_hash"], ""))
            self.newest = max(self.newest, row["position"])
        self._version, self._secret = now[0], bytes.fromhex(now[1][_KEY])

    def has(self, namespace: Namespace, key: str, position: str) -> bool:
        """Return True if the document with the MERGE key was erased at *position* or later."""
        limits = self._limits.get(namespace)
        return limits is not None and position <= limits.get(key_hash(key, self._secret), "")


def key_hash(key: str, secret: bytes) -> str:
    """Return the HMAC-SHA-256 of a MERGE key, in hex."""
    return hmac.digest(secret, key.encode(errors="surrogatepass"), "sha256").hex()


def key_hash_sql(column: str, secret: bytes) -> str:
    """Return the same as SQL of Spark, for a *column* of keys."""
    inner, outer = (bytes(byte ^ pad for byte in secret.ljust(_BLOCK_BYTES, b"\0")).hex() for pad in (0x36, 0x5C))
    return f"sha2(concat(X'{outer}', unhex(sha2(concat(X'{inner}', encode({column}, 'utf-8')), 256))), 256)"
