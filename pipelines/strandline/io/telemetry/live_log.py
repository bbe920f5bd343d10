"""The newest log lines of this process, for the web page."""

from __future__ import annotations

import logging
from collections import deque
from datetime import UTC, datetime
from typing import Final

from strandline.plain_text import printable

_LINES: Final = 200
_LONGEST: Final = 500
"""Maximum characters of a line that is kept."""


class RecentLog(logging.Handler):
    """Handler that keeps the newest lines from level INFO on. Stack traces are left out.

    A line holds no more than the log itself. Safe for several threads.
    """

    def __init__(self, lines: int = _LINES) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[dict[str, str]] = deque(maxlen=lines)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = printable(record.getMessage())
        except Exception:  # noqa: BLE001  # why: as every handler of logging, a wrong format string ends nothing
            self.handleError(record)
            return
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds")
        self._lines.append({"at": at, "level": record.levelname, "text": text[:_LONGEST]})

    def newest_first(self) -> list[dict[str, str]]:
        """Return the lines, newest first: time (ISO 8601, UTC), level and text."""
        return list(reversed(self._lines.copy()))  # a copy, because iteration fails when another thread appends


LOG: Final = RecentLog()
"""The log of this process. `set_up_logging` feeds it."""
