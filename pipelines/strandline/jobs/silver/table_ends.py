"""Versions of a collection's tables at the end of a silver run: the run's cut names them.

Another silver run may merge newer rows into the same table at the same time. So a version is taken from the run's own
commits, and a version that may hold rows of another run says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from strandline.io.delta_log.commits import Commit
from strandline.io.tables.table_store import TableStore
from strandline.model.query import Query
from strandline.model.tables import TableName
from strandline.silver.progress import Progress

_MERGES: Final = ("MERGE", "UPDATE")
"""Operations with which a silver run changes rows."""
_CHANGED_ROWS: Final = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numUpdatedRows")


@dataclass(frozen=True)
class TableEnd:
    """One table at the end of a run."""

    table: TableName
    version: int
    is_own: bool
    """True: since the last run, only commits of this run have changed rows. False: those of another one may have."""


def table_end(tables: TableStore, table: TableName, after: int, through: Progress, merges: int) -> TableEnd:
    """Return the last version of *table* before another run has changed rows that this run had not merged.

    I/O: reads the commits since the last run.

    Args:
        after: Version of the table at the end of the last run. -1: none.
        through: Progress that this run has stored.
        merges: Number of commits with which this run has changed rows.
    """
    newest = tables.version(table)
    commits = tables.commits_between(table, after, newest)
    if commits is None:
        return TableEnd(table, newest, is_own=False)
    stored_at = next((commit.version for commit in commits if _stores(commit, through)), newest)
    version = min((commit.version - 1 for commit in _merges(commits) if commit.version > stored_at), default=newest)
    merge_count = sum(1 for commit in _merges(commits) if commit.version <= version)
    return TableEnd(table, version, is_own=merge_count <= merges)


def holds_rows_above(tables: TableStore, end: TableEnd, position: str) -> bool:
    """Return True if the version holds a row above *position*. I/O: reads a column, unless all commits are own ones."""
    if end.is_own:
        return False
    above = Query(end.table, version=end.version).where(("_position", ">", position))
    return bool(tables.query(above.select("_position").limit(1)))


def newest_position(tables: TableStore, table: TableName) -> str:
    """Return the largest position in a silver table. Empty: it has no row. I/O: reads a column."""
    (row,) = tables.query(Query(table).aggregate(newest=("max", "_position")))
    return row["newest"] or ""


def _merges(commits: Iterable[Commit]) -> Iterable[Commit]:
    """Yield the commits that changed rows as a silver run does."""
    for commit in commits:
        if commit.operation in _MERGES and any(commit.metrics.get(name, "0") != "0" for name in _CHANGED_ROWS):
            yield commit


def _stores(commit: Commit, progress: Progress) -> bool:
    """Return True if the commit stored *progress* among the table's properties."""
    properties = json.loads(commit.parameters.get("properties", "{}"))
    is_set = isinstance(properties, dict)  # UNSET TBLPROPERTIES has a list of names
    return is_set and all(properties.get(name) == value for name, value in progress.properties.items())
