"""Upkeep of a table, beside the appends of a capture: checkpoints and merges of small files. No Spark."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Final

from deltalake import PostCommitHookProperties

from strandline.errors import one_line
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.sorted_rewrite import merge_small_files
from strandline.io.delta_log.table_folder import LOG, TableFolder

NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""For bronze: checkpoints are written beside the appends, and the log is cleaned after a checkpoint is on the disk."""
_INTERVAL: Final = "delta.checkpointInterval"
_DELTAS_INTERVAL: Final = 10
_MANY_FILES: Final = 1_000
"""Small files that become one. With 21,000 files a commit takes 0.1 s, with 3,000 12 ms."""
_log = logging.getLogger("strandline.tables")


def write_checkpoint(folder: TableFolder) -> int:
    """I/O: writes a checkpoint, syncs it, removes log files older than ``delta.logRetentionDuration``.

    Raises:
        Exception: The library raises a bare Exception for a file that it cannot read.

    Returns:
        Version of the checkpoint.
    """
    table = folder.table()
    table.create_checkpoint()
    newest = f"{LOG}/{LogFolder(folder).checkpoint():020}.checkpoint.parquet"
    folder.sync(newest, f"{LOG}/_last_checkpoint", LOG)  # before older log files are removed
    table.cleanup_metadata()
    return int(table.version())


def checkpoint_interval(properties: dict[str, str]) -> int:
    """Return the number of commits between two checkpoints, from the table's properties."""
    return int(properties.get(_INTERVAL, _DELTAS_INTERVAL))


@dataclass
class TableUpkeep:
    """Works in a thread when *interval* commits have passed since the last checkpoint. Appends go on.

    Writes a checkpoint; removes log files older than ``delta.logRetentionDuration``; merges small files if there are a
    thousand.

    Args:
        folder: Folder of the table.
        interval: Number of commits between two checkpoints.
    """

    folder: TableFolder
    interval: int
    written: int = field(default=-1, init=False)
    """Version of the newest checkpoint that this object has written. -1: none."""
    _last: int = field(init=False)
    """Version of the newest checkpoint that was found or attempted."""
    _thread: threading.Thread | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._last = max(self._log.checkpoint(), 0)

    @property
    def _log(self) -> LogFolder:
        return LogFolder(self.folder)

    def begin_if_due(self, version: int) -> None:
        """Begin if a checkpoint is due at *version*, and the last work has ended. Not for several threads at once.

        I/O: works in a thread. A failure is logged, and costs nothing but a longer log and more files.
        """
        if version - self._last < self.interval or (self._thread is not None and self._thread.is_alive()):
            return
        newest = self._log.checkpoint()
        if newest > version - self.interval:  # another writer has written one
            self._last = newest
            return
        self._last = version
        self._thread = threading.Thread(target=self._work, name="strandline-upkeep", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.written = write_checkpoint(self.folder)
            merge_small_files(self.folder, at_least=_MANY_FILES)
        except Exception as error:  # noqa: BLE001  # why: the library raises a bare Exception for a file that it cannot read
            _log.warning(
                "upkeep of %s failed, and capture tries again later: no checkpoint, or small files are left (%s)",
                self.folder.uri,
                one_line(error),
            )

    def close(self) -> None:
        """Wait for work that has begun."""
        if self._thread is not None:
            self._thread.join()
