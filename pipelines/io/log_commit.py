"""Write one commit of a Delta log in a folder, unless its version exists. No Spark."""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import ConfigurationError


def put_commit(log: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> bool:
    """I/O: writes the commit *version*. It is on the disk on return.

    Args:
        log: The table's ``_delta_log``.
        actions: Actions of Delta's protocol, one line each.

    Returns:
        False: the version exists. Nothing was written.

    Raises:
        ConfigurationError: The file system has no hard links.
    """
    final, prepared = log / f"{version:020}.json", log / f".{version:020}.{uuid.uuid4()}.tmp"
    try:
        with prepared.open("x", encoding="utf-8") as file:
            file.writelines(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
            file.flush()
            os.fsync(file.fileno())
        os.link(prepared, final)  # unlike a rename, a hard link replaces no file
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise ConfigurationError(
            f"the file system of {log.parent} has no hard links, by which the native engine commits",
            next_step="set capture.engine: spark",
        ) from None
    finally:
        prepared.unlink(missing_ok=True)
    sync(log)
    return True


def sync(path: Path) -> None:
    """Sync a file or a folder. A file's name is on disk only after its folder is synced."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
