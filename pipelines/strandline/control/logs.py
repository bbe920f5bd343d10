"""Log formats. No line holds a document's values or a secret: callers log names, counts and positions."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

from strandline.io.telemetry.live_log import LOG
from strandline.plain_text import printable, printable_json, stack_trace


def _at(record: logging.LogRecord) -> str:
    """ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """One line: time, level, message. A stack trace follows it; no line of it begins as a log line does."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_at(record)} {record.levelname} {printable(record.getMessage())}"
        return "\n".join([line, *_trace(record)])


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object per line: at, level, logger, message, context, exception.

    The context comes from the caller: ``extra={"context": {…}}``.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _at(record),
            "level": record.levelname,
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        if (context := getattr(record, "context", None)) is not None:
            line["context"] = context
        if trace := _trace(record):
            line["exception"] = trace
        return printable_json(line)


def _trace(record: logging.LogRecord) -> list[str]:
    error = record.exc_info[1] if record.exc_info else None
    return stack_trace(error).splitlines() if error is not None else []


def set_up_logging(log_format: Literal["text", "json"]) -> None:
    """Send the log to standard error: Strandline from level INFO, libraries from level WARNING.

    The newest lines are kept for the web page, too (`RecentLog`).
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler, LOG], force=True)
    logging.getLogger("strandline").setLevel(logging.INFO)
