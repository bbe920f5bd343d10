"""Commits that delta-rs cannot make: files of the log that are put in place by a hard link. No Spark.

Source: delta-io/delta, PROTOCOL.md: a commit's file must be created only if it does not exist.
"""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipelines import __version__
from pipelines.errors import ConfigurationError

_NO_HARD_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


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


def put_commit(log: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> bool:
    """Write the commit of *version*, unless it exists.

    I/O: writes a temporary file and syncs it; links it to the commit's name; removes the temporary name; syncs *log*. A
    hard link, unlike a rename, replaces no file. The commit is on disk on return.

    Effects on failure: an error before the link leaves no commit. An error of the last sync leaves a commit that
    readers see: look for the commit's file before a file that the commit names is removed.

    Args:
        log: The ``_delta_log`` folder.
        actions: One action each, as the protocol has it. Order is kept.

    Returns:
        False if the version exists. Nothing was changed.

    Raises:
        ConfigurationError: The file system has no hard links. Nothing was changed.
        OSError: The file system refused to write, or is full.
    """
    committed = log / f"{version:020}.json"
    if committed.exists():
        return False
    prepared = log / f".{committed.stem}.{uuid.uuid4()}.tmp"
    try:
        with prepared.open("x", encoding="utf-8") as file:
            file.writelines(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
            file.flush()
            os.fsync(file.fileno())
        _link(prepared, committed)
    except FileExistsError:
        return False
    finally:
        prepared.unlink(missing_ok=True)
    sync(log)
    return True


def _link(prepared: Path, committed: Path) -> None:
    try:
        os.link(prepared, committed)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        raise ConfigurationError(
            f"the file system of {committed.parent} has no hard links, by which a commit replaces no other commit",
            next_step="set capture.engine: spark, or keep the lake on a file system with hard links (ext4, XFS)",
        ) from None


def sync(path: Path) -> None:
    """Sync a file or a folder. A file's name is on disk only after its folder is synced."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
