"""Consistent cuts: rows of ``control.cuts``. Each lists versions of all silver tables that belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.io.ddl import schema_of
from pipelines.io.tables import Tables
from pipelines.model.lake_format import column_names
from pipelines.model.position import cluster_seconds
from pipelines.model.table_schemas import CUTS, CUTS_DDL
from pipelines.model.timestamps import utc

_PROPERTIES: Final = {"delta.checkpointInterval": "100"}  # two commits per run, and few readers need them all


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


def cuts(tables: Tables, *, limit: int) -> list[Cut]:
    """Return the newest *limit* cuts of all sources, newest first. I/O: reads ``control.cuts``."""
    if not tables.exists(CUTS):
        return []
    newest_first = tables.read(CUTS).orderBy(F.col("published_at").desc(), F.col("cut").desc())
    return [_cut(row) for row in newest_first.limit(limit).collect()]


def open_cuts(tables: Tables) -> None:
    """Create the table if it does not exist. Idempotent."""
    tables.create(
        CUTS, schema_of(CUTS_DDL), properties=_PROPERTIES, comment="Versions of all silver tables that belong together"
    )


def publish(tables: Tables, cut: Cut) -> None:
    """Append *cut* in one commit. Create the table if it does not exist."""
    open_cuts(tables)
    schema = schema_of(CUTS_DDL)
    row = (
        cut.number,
        cut.bronze,
        cut.bronze_version,
        cut.position,
        cut.read_position,
        cut.cluster_time,
        cut.published_at,
        cut.exact,
        list(cut.inexact_reasons),
        sorted(cut.tables.items()),
    )
    tables.append(CUTS, tables.spark.createDataFrame([row], schema))


def _cut(row: Row) -> Cut:
    named = {table["name"]: table["version"] for table in row["tables"]}
    return Cut(
        row["cut"],
        row["bronze"],
        row["bronze_version"],
        row["position"],
        row["read_position"],
        tuple(next(row[name] for name in column_names(CUTS, "inexact_reasons") if name in row)),
        named,
        utc(row["published_at"]),
    )
