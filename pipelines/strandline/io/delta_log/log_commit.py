"""Commits that delta-rs cannot make: files of the log that replace no other file. No Spark.

Source: delta-io/delta, PROTOCOL.md: a commit's file must be created only if it does not exist.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from strandline import __version__
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.parquet_file import DataFile
from strandline.io.delta_log.table_folder import TableFolder, commit_name


def commit_info(
    operation: str, parameters: Mapping[str, Any], metrics: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return the action ``commitInfo`` of a commit that is no append, with the present time."""
    return {
        "commitInfo": {
            "timestamp": time.time_ns() // 1_000_000,
            "operation": operation,
            "operationParameters": parameters,
            "isBlindAppend": False,
            "operationMetrics": {name: str(value) for name, value in (metrics or {}).items()},
            "engineInfo": f"strandline/{__version__}",
            "txnId": str(uuid.uuid4()),
        }
    }


def addition(file: DataFile, *, changes_data: bool) -> dict[str, Any]:
    """Return the action ``add`` of a new file.

    Args:
        changes_data: False: its rows were in the table before, so a change data feed leaves them out.
    """
    return {
        "add": {
            "path": file.name,
            "partitionValues": {},
            "size": file.size,
            "modificationTime": file.modified_ms,
            "dataChange": changes_data,
            "stats": file.statistics,
        }
    }


def removal(path: str, size: int, at_ms: int, *, changes_data: bool) -> dict[str, Any]:
    """Return the action ``remove`` of a file. Its *path* is as the log has it. VACUUM removes the file later."""
    return {
        "remove": {
            "path": path,
            "deletionTimestamp": at_ms,
            "dataChange": changes_data,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": size,
        }
    }


def put_commit(folder: TableFolder, version: int, actions: Sequence[Mapping[str, Any]]) -> bool:
    """I/O: writes the commit of *version*, unless it exists. It is on disk on return. Raises as `TableFolder.create`.

    Effects on failure: as `TableFolder.create`. Look for the commit before a file that it names is removed.

    Args:
        actions: One action each, as the protocol has it. Order is kept. One of them is from `commit_info`, which makes
            the commit unique: so a commit whose answer was lost is told from another writer's.

    Returns:
        False if the version exists, also if log clean-up has removed its file: a commit below the newest checkpoint is
        read by nobody. Nothing was changed.
    """
    if LogFolder(folder).checkpoint() >= version:
        return False
    lines = (json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    return folder.create(commit_name(version), "".join(lines).encode())
