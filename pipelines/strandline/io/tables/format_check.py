"""Format of a lake: tables of a preview or of a newer release. No Spark."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.errors import ConfigurationError
from strandline.io.tables.table_store import TableStore
from strandline.model.lake_format import refuse_other_format
from strandline.model.table_schemas import CUTS
from strandline.model.tables import LAYERS, TableName


def refuse_other_lake(tables: TableStore, bronze: TableName) -> None:
    """I/O: reads properties of two tables.

    Raises:
        ConfigurationError: A newer release or a preview has written the lake.
    """
    for table in (CUTS, bronze):
        if tables.exists(table):
            refuse_other_format(table, tables.properties(table))


def other_formats(tables: TableStore) -> Iterator[ConfigurationError]:
    """I/O: yields the refusal of each table that has another format. Reads properties of all tables."""
    for table in (table for layer in LAYERS for table in tables.names(layer)):
        try:
            refuse_other_format(table, tables.properties(table))
        except ConfigurationError as refusal:
            yield refusal
