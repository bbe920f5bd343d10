"""Commits that leave the rows of a table as they are."""

from __future__ import annotations

from typing import Final

from pipelines.io.commits import Commit
from pipelines.io.table_store import TableStore
from pipelines.model.tables import TableName

ROWS_KEPT: Final = ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "OPTIMIZE", "VACUUM START", "VACUUM END")
"""Operations, in Delta's words, that change no row."""
_MAX_COMMITS_READ: Final = 1000
"""Maximum commits to check one by one. Beyond it, the rows count as changed."""
_MERGE_ROW_COUNTS: Final = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def rows_changed(tables: TableStore, table: TableName, after: int, through: int) -> bool:
    """Return True if a commit of *table* after version *after*, up to and including *through*, may have changed rows.

    I/O: reads the history of these commits only; writes nothing.
    """
    if tables.version(table) - after > _MAX_COMMITS_READ:
        return True
    commits = tables.commits_between(table, after, through)
    return commits is None or not all(_keeps_rows(commit) for commit in commits)


def _keeps_rows(commit: Commit) -> bool:
    merged_nothing = commit.operation == "MERGE" and all(commit.metrics.get(name) == "0" for name in _MERGE_ROW_COUNTS)
    return commit.operation in ROWS_KEPT or merged_nothing
