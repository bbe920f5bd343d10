"""Operation types that this release does not know: bronze stores them, silver ignores them, the user is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from strandline.control.notifications import OPERATION, Notifications
from strandline.io.telemetry.metrics import UNKNOWN_EVENTS
from strandline.plain_text import printable

_log = logging.getLogger("strandline.capture")


class UnknownOperations:
    """Tells of each unknown operation type once per run: a warning, and a notification for `strandline status`."""

    def __init__(self, notifications: Notifications) -> None:
        self._notifications = notifications
        self._types: set[str] = set()

    def add(self, counts: Mapping[str, int]) -> None:
        """Count events by unknown type. I/O: the log."""
        for kind, number in counts.items():
            UNKNOWN_EVENTS.labels(kind).inc(number)
            if kind not in self._types:
                self._types.add(kind)
                _log.warning(
                    "MongoDB sends events of a type that this release does not know: %s. Bronze stores them, and silver"
                    " ignores them (strandline explain versions)",
                    printable(kind),
                )
                self._notifications.notify(OPERATION, "SKIPPED", kind)
