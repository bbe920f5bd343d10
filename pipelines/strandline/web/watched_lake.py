"""The lake behind the pages and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from strandline.io.tables.measured_tables import MeasuredTables, TableSize
from strandline.io.tables.table_store import TableStore
from strandline.jobs.lake_context import DeltaRsContext, LakeContext, open_without_spark
from strandline.model.tables import TableName
from strandline.settings.configuration import Settings
from strandline.web.calls import Calls


class WatchedTables(TableStore, Protocol):
    """Tables that also tell their sizes. Safe for several threads."""

    def size(self, table: TableName) -> TableSize:
        """I/O: size of *table*."""

    def can_query(self, table: TableName) -> bool:
        """I/O: returns False if rows of *table* cannot be read here."""

    def added_per_minute(self, table: TableName) -> list[int]:
        """I/O: rows that *table* got in each of the last minutes, oldest first."""


@dataclass(frozen=True)
class WatchedLake:
    """An opened lake.

    Args:
        ctx: Context of the jobs that the pages call. Its tables are *tables*.
        calls: Calls of the API, which open the lake for themselves.
    """

    ctx: LakeContext
    tables: WatchedTables
    calls: Calls


def watch_without_spark(settings: Settings) -> WatchedLake | None:
    """Open a lake in a folder of this machine or in S3. None, I/O, raises: as `open_without_spark`."""
    lake = open_without_spark(settings)
    if lake is None:
        return None
    tables = MeasuredTables(lake.tables.lake, lake.tables.options)
    return WatchedLake(DeltaRsContext(settings, tables), tables, Calls(settings))
