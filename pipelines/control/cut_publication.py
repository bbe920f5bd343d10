"""Publication of cuts: Spark appends rows to ``control.cuts``."""

from __future__ import annotations

from typing import Final

from pipelines.control.cuts import Cut
from pipelines.io.ddl import schema_of
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import CUTS, CUTS_DDL

_PROPERTIES: Final = {"delta.checkpointInterval": "100"}  # two commits per run, and few readers need them all


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
