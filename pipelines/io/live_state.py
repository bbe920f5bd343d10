"""State of the capture of this process. Metrics are computed from it at the moment when they are read."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final


@dataclass
class CaptureState:
    """State of one capture. Safe for several threads.

    Several captures of one process, as in tests, share it: the last one to write wins.
    """

    commits: int = 0
    """Commits to bronze: batches of the stream, and chunks of snapshots."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)
    complete_until: float | None = None
    """Unix time until which all changes of the source are in bronze. None: unknown yet."""

    def committed(self) -> None:
        """Count one commit."""
        with self._lock:
            self.commits += 1

    def completed_until(self, moment: float) -> None:
        """Note that all changes of the source until *moment* are in bronze. It never goes back.

        Args:
            moment: Unix time: of this machine when it saw that nothing was left to read, or of the source for the
                newest event in bronze.
        """
        self.complete_until = max(moment, self.complete_until or moment)

    @property
    def behind_seconds(self) -> float | None:
        """Age of the state that bronze shows, in seconds, at this moment. None: unknown."""
        return None if self.complete_until is None else max(0.0, time.time() - self.complete_until)


CAPTURE: Final = CaptureState()
"""The capture of this process."""
