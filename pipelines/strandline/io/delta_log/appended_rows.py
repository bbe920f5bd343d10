"""Rows that commits appended to a table, read from the files that the commits name. No Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.parquet_file import Budget, TooLarge, read_data_file
from strandline.io.delta_log.table_folder import TableFolder

COMMIT_VERSION: Final = "_commit_version"
_KNOWN: Final = frozenset({"add", "remove", "commitInfo", "metaData", "protocol", "txn", "domainMetadata"})
"""Actions that change no row, but for those of files that change data."""


@dataclass(frozen=True)
class AppendLimits:
    """How many rows are read in this process at most."""

    rows: int
    size: int
    """Bytes of the rows, not compressed."""


def appended_rows(
    folder: TableFolder, after: int, through: int, schema: pa.Schema, limits: AppendLimits
) -> pa.Table | None:
    """I/O: returns the rows that the versions above *after* up to *through* appended, with ``_commit_version``.

    Rows that a compaction has written anew are left out.

    Args:
        schema: Columns to read. A column that a file lacks is null.

    Returns:
        None if the rows are not known from these files: there are more than *limits* allow, log clean-up or VACUUM has
        removed a file, or a commit did something else than to append, such as a RESTORE.
    """
    files, rows = [], 0
    for version, action in _actions(LogFolder(folder), after, through):
        if action is None:
            return None
        files.append((version, action["path"]))
        rows += json.loads(action.get("stats") or "{}").get("numRecords", limits.rows + 1)
        if rows > limits.rows:
            return None
    budget = Budget(limits.size)
    try:
        parts = [_with_version(read_data_file(folder, path, schema, budget), version) for version, path in files]
    except (FileNotFoundError, TooLarge, pa.ArrowException):
        return None
    return pa.concat_tables([_empty(schema), *parts])


def _actions(log: LogFolder, after: int, through: int) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the added data files, each with its version. None: a commit is gone, or did something else."""
    for version in range(after + 1, through + 1):
        actions = log.actions(version)
        if actions is None:
            yield version, None
            return
        for action in actions:
            ((kind, body),) = action.items()
            changes_data = bool(body.get("dataChange", True))
            if kind == "add" and changes_data and body.get("deletionVector") is None and not body["partitionValues"]:
                yield version, body
            elif (kind in ("add", "remove") and changes_data) or kind not in _KNOWN:
                yield version, None


def _with_version(rows: pa.Table, version: int) -> pa.Table:
    return rows.append_column(COMMIT_VERSION, pa.array([version] * rows.num_rows, pa.int64()))


def _empty(schema: pa.Schema) -> pa.Table:
    return _with_version(schema.empty_table(), 0)
