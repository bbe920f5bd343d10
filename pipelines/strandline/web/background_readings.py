"""Readings in the background: a page never waits for the lake longer than a fifth of a second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from strandline.errors import one_line

_PATIENCE_SECONDS: Final = 0.15
_log = logging.getLogger("strandline.ui")


@dataclass(frozen=True)
class Reading:
    """Result of one reading of the lake or the source."""

    value: Any = None
    """None: nothing was read yet, or the reading failed every time."""
    at: datetime | None = None
    """Time of the reading, UTC."""
    problem: str | None = None
    """Error of the newest reading. *value* is then older. None: no error."""

    def again(self, name: str, reader: Callable[[], Any]) -> Reading:
        """Return the result of *reader*. After an error: the older value, with the error."""
        try:
            return Reading(reader(), datetime.now(UTC))
        except Exception as error:  # noqa: BLE001  # why: the page shows it, and the next reading may succeed
            _log.debug("%s: %s", name, one_line(error))
            return replace(self, problem=one_line(error))


class BackgroundReadings:
    """Results of readings, by name. An old result is shown while a new one is read.

    A reading of a large lake takes long, so it is repeated less often.

    Args:
        seconds: Age at which a result is read again, in seconds.
        rest: Minimum pause after a reading, as a multiple of its duration.
    """

    def __init__(self, seconds: float, *, rest: float = 4.0) -> None:
        self._seconds, self._rest = seconds, rest
        self._readings: dict[str, tuple[float, Reading]] = {}
        """By name: time on the monotonic clock from which it is read again, and the newest result."""
        self._running: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def newest(self, name: str, reader: Callable[[], Any], *, patience: float = _PATIENCE_SECONDS) -> Reading:
        """Return the newest result of *reader*. Start *reader* in the background if the result is old.

        Args:
            patience: Maximum wait for a new result, in seconds.
        """
        with self._lock:
            due_at, reading = self._readings.get(name, (float("-inf"), Reading()))
            running = self._running.get(name)
            if running is None and time.monotonic() >= due_at:
                running = self._running[name] = threading.Event()
                # A daemon: the end of the process does not wait for a source that does not answer.
                threading.Thread(
                    target=self._read, args=(name, reader, running), name=f"ui-{name}", daemon=True
                ).start()
        if running is None:
            return reading
        running.wait(patience)
        with self._lock:
            return self._readings.get(name, (0.0, Reading()))[1]

    def _read(self, name: str, reader: Callable[[], Any], ended: threading.Event) -> None:
        begun = time.monotonic()
        reading = self._readings.get(name, (0.0, Reading()))[1].again(name, reader)
        ended_at = time.monotonic()
        with self._lock:
            self._readings[name] = (ended_at + max(self._seconds, self._rest * (ended_at - begun)), reading)
            self._running.pop(name, None)
        ended.set()
