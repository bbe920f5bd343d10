"""Quarantine tables: rows of silver that fail an expectation. Quality writes them; gold leaves out their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.model.tables import TableName

QUARANTINE_DDL: Final = """
_key STRING COMMENT 'MERGE key of the silver row',
suite STRING COMMENT 'suite whose expectations the row fails',
reasons ARRAY<STRING> COMMENT 'failed expectations',
_position STRING COMMENT 'position of the row when it failed',
table_version BIGINT COMMENT 'version of the silver table in which the row failed',
quarantined_at TIMESTAMP COMMENT 'time of the first failure',
run_id STRING COMMENT 'run_id in control.quality',
row STRING COMMENT 'the row when it failed, as JSON'
"""

_OWNER: Final = "strandline.quarantine_of"


def quarantine_of(table: TableName) -> TableName:
    """Return the name of the quarantine table: ``silver.flights_quarantine`` for ``silver.flights``."""
    return TableName(table.layer, f"{table.name}_quarantine")


def quarantine_properties(table: TableName) -> dict[str, str]:
    """Return properties that distinguish a quarantine table from a collection of the same name."""
    return {_OWNER: str(table), "delta.enableChangeDataFeed": "true"}


def is_quarantine_of(table: TableName, properties: Mapping[str, str]) -> bool:
    return properties.get(_OWNER) == str(table)
