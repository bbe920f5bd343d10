"""Governor of a snapshot: it delays chunks, for the rate limit and while the source is loaded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from strandline.io.telemetry.metrics import SNAPSHOT_SLOWED
from strandline.source.load import SourceLoad, reasons_to_slow

_log = logging.getLogger("strandline.snapshot")
_LOOK_SECONDS: Final = 5.0
_HOLD_SECONDS: Final = 60.0


class SnapshotGovernor:
    """Delays the lanes of a snapshot between two chunks. Chunks in progress continue. Thread-safe.

    Args:
        read_load: Reads the load of the source. None: the load is not asked for.
        look_seconds: Minimum time between two questions.
        hold_seconds: Maximum wait before a chunk while the source is loaded. So a snapshot always goes on.
    """

    def __init__(
        self,
        read_load: Callable[[], SourceLoad] | None,
        *,
        look_seconds: float = _LOOK_SECONDS,
        hold_seconds: float = _HOLD_SECONDS,
    ) -> None:
        self._read_load, self._look_seconds, self._hold_seconds = read_load, look_seconds, hold_seconds
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._slowed_since = 0.0
        self.slowed_by: Mapping[str, str] = {}
        """Reasons of the last look, by kind. Empty: the source is not loaded."""
        self.held_at: float | None = None
        """Unix time at which a lane last waited here. None: never."""

    def wait_for_turn(self, ready_at: float, stop: threading.Event) -> bool:
        """Wait until a lane may begin its next chunk. Return False if *stop* is set.

        I/O: reads the load of the source.

        Args:
            ready_at: Time, on the monotonic clock, before which the rate limit allows no chunk.
        """
        while (left := ready_at - time.monotonic()) > 0:
            if self._wait(min(left, self._look_seconds), stop):
                return False
        until = time.monotonic() + self._hold_seconds
        while (reasons := self._reasons()) and (left := until - time.monotonic()) > 0:
            began = time.monotonic()
            stopped = self._wait(min(left, self._look_seconds), stop)
            for reason in reasons:
                SNAPSHOT_SLOWED.labels(reason).inc(time.monotonic() - began)
            if stopped:
                return False
        return not stop.is_set()

    def close(self) -> None:
        """Log the end of the slowing, if the snapshot is slowed."""
        with self._lock:
            self._note({})

    def _wait(self, seconds: float, stop: threading.Event) -> bool:
        self.held_at = time.time()
        stopped = stop.wait(seconds)
        self.held_at = time.time()
        return stopped

    def _reasons(self) -> Mapping[str, str]:
        """Return why the source is loaded, at most `look_seconds` old."""
        if self._read_load is None:
            return {}
        with self._lock:
            if time.monotonic() - self._looked_at >= self._look_seconds:
                self._note(reasons_to_slow(self._read_load()))
                self._looked_at = time.monotonic()
            return self.slowed_by

    def _note(self, reasons: Mapping[str, str]) -> None:
        """Remember *reasons*, and log when slowing begins, has other reasons, and ends."""
        before, self.slowed_by = self.slowed_by, reasons
        if not before:
            self._slowed_since = time.monotonic()
        if reasons and reasons.keys() != before.keys():
            _log.warning(
                "the snapshot is slowed: %s (capture.snapshot_slow_under_load: false reads at full speed)",
                "; ".join(reasons.values()),
            )
        elif before and not reasons:
            seconds = time.monotonic() - self._slowed_since
            _log.info("the snapshot is no longer slowed, after %.0f s (%s)", seconds, ", ".join(before))
