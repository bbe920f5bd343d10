"""The bronze rows of a silver run, read in this process if they are few. No Spark job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from strandline.io.delta_log.appended_rows import AppendLimits, appended_rows
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import tables_here
from strandline.model.tables import TableName
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.small_batch import BATCH

_LIMITS: Final = AppendLimits(rows=10_000, size=32 << 20)
"""Above these, Spark is quicker, and this process would need more memory."""


@dataclass(frozen=True)
class SmallIncrement:
    """Rows that bronze received since the last silver run."""

    tables: DeltaRsTables
    rows: pa.Table
    """Columns of `BATCH`, and ``_commit_version``."""
    increment: BronzeIncrement

    @staticmethod
    def read(ctx: JobContext, bronze: TableName, after: int, through: int) -> SmallIncrement | None:
        """I/O: reads the bronze versions above *after* up to *through*.

        None: ``silver.engine`` is ``spark``; this process does not reach the lake's files; the rows are many, or not
        known from bronze's log; or they hold a drop, a rename or a completed snapshot.
        """
        tables = tables_here(ctx.settings) if ctx.settings.silver.engine == "auto" else None
        if tables is None or after >= through:
            return None
        with table_errors(bronze):
            rows = appended_rows(tables.folder(bronze), after, through, BATCH, _LIMITS)
        increment = None if rows is None else BronzeIncrement.of_batch(rows, after)
        return None if rows is None or increment is None else SmallIncrement(tables, rows, increment)
