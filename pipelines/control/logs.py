"""Log lines for machines and for people. No line holds a document's values or a secret: callers log names, counts and positions."""

from __future__ import annotations

import json
import logging
import sys
from typing import Literal


class JsonFormatter(logging.Formatter):
    """One JSON object a line: at, level, logger, message, and the context that the caller gave (``extra={"context": {…}}``)."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
                "level": record.levelname,
                "logger": record.name,
                "message": record.getMessage(),
                **({"context": context} if (context := getattr(record, "context", None)) is not None else {}),
            }
        )


def set_up_logging(log_format: Literal["text", "json"]) -> None:
    """Send Strandline's log to standard error. Libraries speak only from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("strandline").setLevel(logging.INFO)
