"""Optional questions to the source, and values in replies whose fields may be missing or of another type."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pymongo import errors as mongo

from strandline.source.errors import NOT_ALLOWED

T = TypeVar("T")
_log = logging.getLogger("strandline.source")


def optional_answer(question: Callable[[], T], subject: str) -> T | None:
    """Return the answer to *question*. None: it failed, whatever it met.

    Args:
        subject: What is not known then, for the log.
    """
    try:
        return question()
    except Exception as error:  # noqa: BLE001  # why: a question that need not be answered ends nothing
        # Without its text: a driver's text may quote the URI or a document.
        code = error.code if isinstance(error, mongo.OperationFailure) else None
        level = logging.DEBUG if code in NOT_ALLOWED else logging.INFO
        _log.log(level, "%s is not known: %s, code %s", subject, type(error).__name__, code)
        return None


def document_at(reply: object, *path: str) -> Mapping[str, Any] | None:
    """Return the document at *path* in a server's reply. None: there is none."""
    value: Any = reply
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else None


def value_at(reply: object, kind: type[T], *path: str) -> T | None:
    """Return the value at *path* in a server's reply. None: a field is missing, or has another type than *kind*.

    A boolean is no number.
    """
    value = (document_at(reply, *path[:-1]) or {}).get(path[-1])
    return None if not isinstance(value, kind) or (isinstance(value, bool) and kind is int) else value


def entries_at(reply: object, *path: str) -> list[Mapping[str, Any]]:
    """Return the documents of the list at *path* in a server's reply. Empty: there is no such list."""
    return [entry for entry in value_at(reply, list, *path) or () if isinstance(entry, Mapping)]
