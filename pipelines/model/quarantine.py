"""Where rows wait that a quality gate has set aside: written by quality, respected by gold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipelines.model.tables import TableName

QUARANTINE_DDL: Final = """
_key STRING COMMENT 'the row of the silver table',
suite STRING COMMENT 'whose expectations it did not meet',
reasons ARRAY<STRING> COMMENT 'those expectations',
_position STRING COMMENT 'position of the row that was found so',
table_version BIGINT COMMENT 'version of the silver table in which it was found so',
quarantined_at TIMESTAMP COMMENT 'when it was first found',
run_id STRING COMMENT 'the run in control.quality that found it so',
row STRING COMMENT 'the row as JSON, as it was then'
"""

_OWNER: Final = "strandline.quarantine_of"


def quarantine_of(table: TableName) -> TableName:
    """``silver.flights_quarantine`` for ``silver.flights``."""
    return TableName(table.layer, f"{table.name}_quarantine")


def quarantine_properties(table: TableName) -> dict[str, str]:
    """Properties that tell a quarantine from a collection of the same name."""
    return {_OWNER: str(table), "delta.enableChangeDataFeed": "true"}


def is_quarantine_of(table: TableName, properties: Mapping[str, str]) -> bool:
    return properties.get(_OWNER) == str(table)
