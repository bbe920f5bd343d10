"""Location and names of tables. Only this module quotes identifiers and composes table names."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, get_args

Layer = Literal["bronze", "silver", "gold", "control"]
LAYERS: Final[tuple[Layer, ...]] = get_args(Layer)

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a folder of this machine may have a colon in its name, too
_PLAIN = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*\Z")
_SHADOW = re.compile(r"rebuild_(?P<table>.+)_[0-9a-f]{8}\Z")
_LOOKS_HASHED = re.compile(r"_[0-9a-f]{8}\Z")
_MAX_LENGTH = 100


def quoted(identifier: str) -> str:
    """Quote one identifier for Spark SQL (back-ticks doubled)."""
    return "`" + identifier.replace("`", "``") + "`"


def quoted_path(parts: Sequence[str]) -> str:
    """Quote the path of a nested column for Spark SQL."""
    return ".".join(map(quoted, parts))


def literal(value: str | datetime) -> str:
    """Return one value as a Spark SQL literal, safely quoted. A time without a zone is in the machine's time zone."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(UTC).isoformat(sep=' ')}'"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return (
        "'" + escaped.replace("${", "\\u0024{") + "'"
    )  # Spark would put a variable in its place, ${env:X} from the environment


def literals(values: Iterable[str]) -> str:
    """Return the values as Spark SQL literals, separated by commas, for ``IN (…)``."""
    return ", ".join(map(literal, values))


def safe_name(*parts: str, prefix: str = "", delimiter: str = "__") -> str:
    """Return a plain table name for external names.

    Different inputs give different names (with the default *delimiter*).

    ``safe_name("orders") == "orders"``; ``safe_name("shop", "orders") == "shop__orders"``. Names other than lower-case
    ASCII words are simplified and get eight hex digits of their SHA-256. So ``A`` and ``a`` are two tables, and
    ``../x`` stays in the lake.
    """
    plain = all(_PLAIN.match(part) for part in parts)
    name = delimiter.join(parts)
    if plain and len(name) <= _MAX_LENGTH and not _LOOKS_HASHED.search(name):
        return prefix + name
    escaped = (
        part.replace("\\", "\\\\").replace("\0", "\\0") for part in parts
    )  # so that the joining NUL is no part of a name
    digest = hashlib.sha256("\0".join(escaped).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[: _MAX_LENGTH - 9]
    return f"{prefix}{readable or 'x'}_{digest}"


def names_of_collection(collection: str, *, prefix: str = "", delimiter: str = "__") -> list[str]:
    """Return the names that the silver table of *collection* may have: ``orderLines``, or ``shop.orderLines``."""
    every = [(collection,), tuple(collection.split(".", 1))][: 1 + ("." in collection)]
    return [safe_name(*parts, prefix=prefix, delimiter=delimiter) for parts in every]


@dataclass(frozen=True, order=True)
class TableName:
    """Table of one layer, independent of the location of the lake."""

    layer: Layer
    name: str

    def __str__(self) -> str:
        return f"{self.layer}.{self.name}"

    @property
    def shadow_of(self) -> str | None:
        """Name of the silver table for which a rebuild fills this one. None: it is not a shadow table."""
        match = _SHADOW.match(self.name) if self.layer == "control" else None
        return None if match is None else match["table"]

    def new_shadow(self) -> TableName:
        """Return a unique name of a shadow table for this one."""
        return TableName("control", f"rebuild_{self.name}_{uuid.uuid4().hex[:8]}")

    @staticmethod
    def parse(text: str) -> TableName:
        """Return the table whose text this is."""
        layer, name = text.split(".", 1)
        return TableName(layer, name)  # type: ignore[arg-type]  # why: `__str__` wrote it from a TableName


def history_of(silver: TableName) -> TableName:
    """Return the name of the table with every version of a silver table's documents."""
    return TableName(silver.layer, f"{silver.name}_history")


def live_of(silver: TableName) -> TableName:
    """Return the name of the view with the live documents of a silver table."""
    return TableName(silver.layer, f"{silver.name}_live")


@dataclass(frozen=True)
class Lake:
    """Location of the lake: a folder (``root``) or a catalog (``catalog`` and ``schema``).

    With a folder, a table is ``<root>/<layer>/<name>``. With a catalog, it is ``<catalog>.<schema>_<layer>.<name>``.
    """

    root: str | None = None
    catalog: str | None = None
    schema: str = "strandline"

    @property
    def by_path(self) -> bool:
        return self.catalog is None

    @property
    def in_object_store(self) -> bool:
        """True if ``root`` is a URI (``s3://…``, ``dbfs:/…``) and not a local folder."""
        return _URI.match(self.root or "") is not None

    def path(self, table: TableName) -> str:
        """Return the absolute folder of *table*, or its URI if ``root`` is a URI (``s3://…``, ``dbfs:/…``)."""
        return f"{self.folder(table.layer)}/{table.name}"

    def folder(self, layer: str) -> str:
        """Return the absolute folder of a layer's tables, or its URI."""
        root = self.root or "lake"
        base = root.rstrip("/") if self.in_object_store else str(Path(root).absolute())
        return f"{base}/{layer}"

    def sql(self, table: TableName) -> str:
        """Return the quoted table name for Spark SQL, by path or by catalog."""
        if self.by_path:
            return f"delta.{quoted(self.path(table))}"
        return f"{self.sql_schema(table.layer)}.{quoted(table.name)}"

    def sql_schema(self, layer: str) -> str:
        """Return the quoted name of a layer's schema in the catalog."""
        return f"{quoted(self.catalog or '')}.{quoted(f'{self.schema}_{layer}')}"
