"""``control.erasures``: documents that were erased, by a keyed hash of their MERGE keys."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
        if _KEY not in self.tables.properties(ERASURES):
            self.tables.set_properties(ERASURES, {_KEY: secrets.token_hex(_KEY_BYTES)})
        secret = self.secret()
        common = {
            "id": request.id,
            "source": request.source,
            "db": request.namespace.db,
            "collection": request.namespace.collection,
            "position": request.position,
            "requested_at": request.at,
            "by": request.by,
            "why": request.why,
            **dict.fromkeys(("hidden_at", "tables", "gone_at")),
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

    def secret(self) -> bytes:
        """I/O: returns the key of the hashes, from the table's properties. The table exists."""
        return bytes.fromhex(self.tables.properties(ERASURES)[_KEY])

    def all(self, source: str) -> list[dict[str, Any]]:
        """I/O: returns a row for each erasure of *source*, oldest first: the columns that its documents share, and
        their number as ``documents``."""
        if not self.tables.exists(ERASURES):
            return []
        shared = ("id", "db", "collection", "position", "requested_at", "by", "why", "hidden_at", "tables", "gone_at")
        rows = Query(ERASURES).where(("source", "=", source)).group(*shared).aggregate(documents=("count", "key_hash"))
        return sorted(self.tables.query(rows), key=lambda row: row["requested_at"])


def key_hash(key: str, secret: bytes) -> str:
    """Return the HMAC-SHA-256 of a MERGE key, in hex."""
    return hmac.digest(secret, key.encode(errors="surrogatepass"), "sha256").hex()


def key_hash_sql(column: str, secret: bytes) -> str:
    """Return the same as SQL of Spark, for a *column* of keys."""
    inner, outer = (bytes(byte ^ pad for byte in secret.ljust(_BLOCK_BYTES, b"\0")).hex() for pad in (0x36, 0x5C))
    return f"sha2(concat(X'{outer}', unhex(sha2(concat(X'{inner}', encode({column}, 'utf-8')), 256))), 256)"
