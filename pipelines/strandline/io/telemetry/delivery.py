"""Failed deliveries of traces and lineage events: counted, and one line in the log for each outage."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Final, Literal

from strandline.io.telemetry.metrics import TELEMETRY_FAILURES

_CREDENTIALS: Final = re.compile(r"://[^/@\s]+@")
"""User and password in a URL: libraries quote URLs."""
_log = logging.getLogger("strandline.telemetry")


@dataclass
class Deliveries:
    """Deliveries of one kind."""

    kind: Literal["traces", "lineage"]
    _is_down: bool = field(default=False, init=False)

    def succeeded(self) -> None:
        if self._is_down:
            _log.info("delivery of %s works again", self.kind)
        self._is_down = False

    def failed(self, reason: str) -> None:
        """Count a failure. Log it if the delivery before it succeeded."""
        TELEMETRY_FAILURES.labels(self.kind).inc()
        if not self._is_down:
            _log.warning(
                "delivery of %s failed: %s; until it works again, failures are only counted",
                self.kind,
                _CREDENTIALS.sub("://", " ".join(reason.split()).rstrip(".")),
            )
        self._is_down = True
