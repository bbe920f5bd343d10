"""Checkpoints of a Delta log in a folder, written beside the appends. No Spark."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipelines.errors import one_line
from pipelines.io.commits import LogFolder
from pipelines.io.log_commit import sync

_INTERVAL: Final = "delta.checkpointInterval"
_DELTAS_INTERVAL: Final = 10
_log = logging.getLogger("strandline.tables")


def checkpoint_interval(properties: dict[str, str]) -> int:
    """Return the number of commits between two checkpoints, from the table's properties."""
    return int(properties.get(_INTERVAL, _DELTAS_INTERVAL))


@dataclass
class CheckpointWriter:
    """Writes a checkpoint in a thread when *interval* commits have passed since the last one. Appends go on.

    After a checkpoint, log files older than ``delta.logRetentionDuration`` are removed.

    Args:
        folder: Absolute path of the table.
    """

    folder: Path
    interval: int
    written: int = field(default=-1, init=False)
    """Version of the newest checkpoint that this writer has written. -1: none."""
    _last: int = field(init=False)
    """Version of the newest checkpoint that was found or attempted."""
    _thread: threading.Thread | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._last = max(self._log.checkpoint(), 0)

    @property
    def _log(self) -> LogFolder:
        return LogFolder(self.folder / "_delta_log")

    def write_if_due(self, version: int) -> None:
        """Start a checkpoint if one is due at *version*, and none is being written. Not for several threads at once.

        I/O: writes the checkpoint in a thread. A failure is logged, and costs nothing but a longer log.
        """
        if version - self._last < self.interval or (self._thread is not None and self._thread.is_alive()):
            return
        newest = self._log.checkpoint()
        if newest > version - self.interval:  # another writer has written one
            self._last = newest
            return
        self._last = version
        self._thread = threading.Thread(target=self._write, name="strandline-checkpoint", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        try:
            table = DeltaTable(str(self.folder))
            table.create_checkpoint()
            self._sync()
            self.written = int(table.version())
            table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            _log.warning(
                "no checkpoint of %s was written; capture tries again later (%s)", self.folder, one_line(error)
            )

    def _sync(self) -> None:
        """Sync the newest checkpoint, its pointer and their folder, before older log files are removed."""
        folder = self._log.path
        newest = folder / f"{self._log.checkpoint():020}.checkpoint.parquet"
        for path in (newest, folder / "_last_checkpoint", folder):
            sync(path)

    def close(self) -> None:
        """Wait for a checkpoint that is being written."""
        if self._thread is not None:
            self._thread.join()
