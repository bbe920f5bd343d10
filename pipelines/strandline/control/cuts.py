"""Consistent cuts: rows of ``control.cuts``. Each lists versions of all silver tables that belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from strandline.io.tables.table_store import TableStore
from strandline.model.position import cluster_seconds
from strandline.model.query import Query
from strandline.model.table_schemas import CUTS


@dataclass(frozen=True)
class Cut:
    """Versions of all silver tables at one moment of the source. A cut that is not exact is as close as is known."""

    number: int
    bronze: str
    bronze_version: int
    position: str | None
    """Position of the newest change event. None: all rows come from a snapshot."""
    read_position: str | None
    """Newest position at which a snapshot read. None: no snapshot read."""
    inexact_reasons: tuple[str, ...]
    """Reasons why the cut is not exact. Empty: it is exact."""
    tables: Mapping[str, int]
    """Version to read, by table name."""
    published_at: datetime
    """UTC."""

    @property
    def exact(self) -> bool:
        """Return True if all tables show the same moment of the source."""
        return not self.inexact_reasons

    @property
    def cluster_time(self) -> datetime | None:
        """Return the time of the newest change event, UTC; None without events."""
        return None if self.position is None else datetime.fromtimestamp(cluster_seconds(self.position), UTC)


def cuts(tables: TableStore, *, limit: int) -> list[Cut]:
    """Return the newest *limit* cuts of all sources, newest first. I/O: reads ``control.cuts``."""
    if not tables.exists(CUTS):
        return []
    columns = ("cut", "bronze", "bronze_version", "position", "read_position", "inexact_reasons")
    newest_first = Query(CUTS).select(*columns, "tables", "published_at").order("-published_at", "-cut").limit(limit)
    return [_cut(row) for row in tables.query(newest_first)]


def _cut(row: dict[str, Any]) -> Cut:
    named = {table["name"]: table["version"] for table in row["tables"]}
    return Cut(
        row["cut"],
        row["bronze"],
        row["bronze_version"],
        row["position"],
        row["read_position"],
        tuple(row["inexact_reasons"]),
        named,
        row["published_at"],
    )
