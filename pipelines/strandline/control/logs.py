"""Log formats. No line holds a document's values or a secret: callers log names, counts and positions."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

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


class HumanFormatter(logging.Formatter):
    """One line for a person at a terminal: local time, the level of a problem, message. A stack trace follows it.

    The caller may give a shorter message: ``extra={"brief": …}``.
    """

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        message = getattr(record, "brief", None) or record.getMessage()
        line = f"{datetime.fromtimestamp(record.created):%H:%M:%S} {level}{printable(message)}"
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


class StandardErrorHandler(logging.StreamHandler[TextIO]):
    """Handler that writes to what is standard error now. Progress bars put a proxy there, to stand below the log."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


LogFormat = Literal["auto", "text", "json"]
"""``auto``: short lines for a person on a terminal, and ``json`` elsewhere."""


def set_up_logging(log_format: LogFormat) -> None:
    """Send the log to standard error: Strandline from level INFO, libraries from level WARNING.

    The newest lines are kept for the web page, too (`RecentLog`).
    """
    handler = StandardErrorHandler(sys.stderr)
    automatic = HumanFormatter if sys.stderr.isatty() else JsonFormatter
    formatters = {"auto": automatic, "text": TextFormatter, "json": JsonFormatter}
    handler.setFormatter(formatters[log_format]())
    logging.basicConfig(level=logging.WARNING, handlers=[handler, LOG], force=True)
    logging.getLogger("strandline").setLevel(logging.INFO)
