"""The bronze rows of a silver run, read in this process if they are few. No Spark job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from strandline.io.appended_rows import AppendLimits, appended_rows
from strandline.io.changeable_table import CommittedChange
from strandline.io.conflicts import OvertakenError
from strandline.io.delta_rs_tables import DeltaRsTables, table_errors
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import tables_here
from strandline.model.tables import TableName
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.small_batch import BATCH

_LIMITS: Final = AppendLimits(rows=10_000, size=16 << 20)
"""Above these, Spark is quicker, and this process would need more memory."""


@dataclass(frozen=True)
class SmallIncrement:
    """Rows that bronze received since the last silver run."""

    tables: DeltaRsTables
    rows: pa.Table
    """Columns of `BATCH`, and ``_commit_version``."""
    increment: BronzeIncrement
    commits: list[CommittedChange] = field(default_factory=list)
    """Commits that this run made in this process. Threads append to it."""

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

    def require_kept(self) -> None:
        """I/O: reads the commits of this run again.

        Spark renames its log file into place, in a folder of this machine. This may replace a commit that came between
        Spark's look and its rename.

        Raises:
            OvertakenError: Another writer's commit has replaced one. Its rows are merged again by the next run.
        """
        lost = next((commit for commit in self.commits if not commit.is_kept()), None)
        if lost is not None:
            raise OvertakenError(
                f"another writer's commit has replaced a commit of {lost.folder.uri}; nothing is lost",
                next_step="strandline silver: it merges the rows again",
            )
