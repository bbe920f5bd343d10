"""Escaping and masking of external text for the log, the terminal and error messages. Pure.

Collection names and server messages may hold any character. A raw line break forges a log line; a raw escape sequence
rewrites the terminal. Spark's messages may hold values of documents.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from datetime import date, time
from typing import Any, Final

_BIDI_CONTROLS: Final = (
    0x061C,
    0x200E,
    0x200F,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)  # Unicode's property Bidi_Control
_HOSTILE: Final = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *_BIDI_CONTROLS, *range(0xD800, 0xE000))
_ESCAPED: Final = {code: rf"\x{code:02x}" if code < 0x100 else rf"\u{code:04x}" for code in _HOSTILE} | {
    9: r"\t",
    10: r"\n",
    13: r"\r",
}
_ESCAPED_IN_JSON: Final = {
    code: rf"\u{code:04x}" for code in _HOSTILE if code != 10
}  # the break between two lines of JSON stays

_CAUSE: Final = re.compile(r"^(?:Caused by|): [\w.$]+(?:Exception|Error): (.+)$", re.MULTILINE)
_CONDITION: Final = re.compile(r"^\[([A-Z][A-Z0-9_.]+)\]")
_QUOTED: Final = re.compile(r"(?<!\w)'.*'(?!\w)|\".*\"")
_JVM_FRAME: Final = re.compile(r"^\s+at ([\w.$<>/]+\([\w.: ]+\))$", re.MULTILINE)
_PYTHON_ERROR: Final = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last)"
_RAISED: Final = re.compile(r"^([A-Za-z_][\w.]*): (.+)$", re.MULTILINE)
_NO_PROGRAM: Final = re.compile(r'Cannot run program "([^"]+)"')
_NESTED: Final = re.compile(r"\s*\x1b\[\d+m↳\x1b\[0m\s*")
"""Before each cause in an error of delta-rs."""
_STORE_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_LONGEST: Final = 500
_MOST_FRAMES: Final = 40
_MOST_CAUSES: Final = 20
# Message parameters of Spark that name types, settings or places. Any other parameter may be a value of a document.
_NAMES: Final = (
    "sourceType",
    "targetType",
    "ansiConfig",
    "config",
    "functionName",
    "suggestion",
    "mapKeyDedupPolicy",
    "path",
    "fileName",
    "fileNames",
    "tableName",
    "tableId",
    "constraintName",
    "columnName",
    "operation",
    "version",
    "versions",
)


def printable(text: str) -> str:
    r"""Return *text* on one line.

    Control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls and lone surrogates become
    escapes such as ``\n``, ``\x1b`` or ``\u202e``. All other characters stay.
    """
    return text.translate(_ESCAPED)


def printable_json(value: Any, *, indent: int | None = None) -> str:
    """Return *value* as JSON, with JSON escapes for the characters that `printable` escapes.

    Types that JSON lacks become text.
    """
    return json.dumps(value, default=_as_text, ensure_ascii=False, indent=indent).translate(_ESCAPED_IN_JSON)


def _as_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, date | time) else str(value)


def masked(text: str) -> str:
    """Return *text* without the login in an address, and without parameters of an address that are secrets."""
    return _SECRET_PARAMETER.sub(rf"\1{MASK}", _LOGIN.sub(f"{MASK}@", text))


MASK: Final = "********"
_LOGIN: Final = re.compile(r"(?<=://)[^/?#\s@]*@")
"""User and password in an address."""
_SECRET_PARAMETER: Final = re.compile(r"([?&;]\w*(?:password|secret|token|key|sig)\w*=)[^&;\s]*", re.IGNORECASE)


OWN_MESSAGE: Final = "strandline: "
"""Prefix of messages that Strandline itself raises inside a query (``raise_error``). They contain no value."""


def without_values(error: BaseException) -> str:
    """Return *error* as one line, without values of documents that Spark or Python quote in its message.

    * ``AnalysisException`` (Spark refuses a query): the first line. It names columns, not rows.
    * Another Spark error with an error condition: condition and message, with placeholders such as ``<expression>``
      instead of values.
    * An error of a file, a connection or an object store: its message, and the last cause or the store's code.
    * Any other error: the message of the innermost cause, without quoted text.
    """
    if isinstance(error, OSError) or any(kind.__name__ == "AnalysisException" for kind in type(error).__mro__):
        first, *causes = _NESTED.split(str(error).strip())
        cause = store_code(error) or (_first_line(causes[-1]) if causes else "")
        text = ": ".join(filter(None, (_first_line(first), cause)))
    else:
        text = next(filter(None, map(_by_condition, _innermost_first(error))), None) or _masked(str(error))
    return printable(text or type(error).__name__)[:_LONGEST]


def store_code(error: BaseException) -> str:
    """Return the error code that an object store answered with, such as ``NoSuchBucket``. Empty: none."""
    match = _STORE_CODE.search(str(error))
    return match[1] if match is not None else ""


def condition_of(error: BaseException) -> str:
    """Return the error condition of the innermost Spark error, such as ``TABLE_OR_VIEW_NOT_FOUND``. Empty: none."""
    return next(filter(None, (_asked(cause, "getCondition") for cause in _innermost_first(error))), "")


def stack_trace(error: BaseException) -> str:
    """Return the stack frames of *error* and its causes, JVM frames included.

    Each error message is one line, masked by `without_values`.
    """
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    blocks = []
    for cause in reversed(chain):
        frames = [printable(line) for frame in traceback.format_tb(cause.__traceback__) for line in frame.splitlines()]
        frames += [f"  at {frame}" for frame in _JVM_FRAME.findall(str(cause))[:_MOST_FRAMES]]
        blocks.append(
            "\n".join(
                ["Traceback (most recent call last):", *frames, f"{type(cause).__name__}: {without_values(cause)}"]
            )
        )
    return "\n".join(blocks)


def raised_by_worker(error: BaseException) -> tuple[str, str] | None:
    """Return class and message of the Python error that ended a task of Spark. None: there is no such error.

    The message may contain values of documents. If a worker could not start Python, the class is ``FileNotFoundError``
    and the message is the name of the program.
    """
    for text in map(str, _innermost_first(error)):
        if (raised := _RAISED.search(text.rpartition(_TRACEBACK)[2])) is not None and _TRACEBACK in text:
            return raised[1], raised[2]
        if (program := _NO_PROGRAM.search(text)) is not None:
            return FileNotFoundError.__name__, program[1]
    return None


def java_causes(exception: Any) -> Iterator[Any]:
    """Yield a Java exception and its causes, the outermost first. None: yields nothing."""
    for _ in range(_MOST_CAUSES):
        if exception is None:
            return
        yield exception
        exception = exception.getCause()


def _innermost_first(error: BaseException) -> list[Any]:
    """Return the innermost JVM cause first, *error* last; only *error* if it has no JVM exception."""
    errors = [error, *java_causes(getattr(error, "java_exception", None))]
    return errors[:_MOST_CAUSES][::-1]


def _by_condition(error: Any) -> str | None:
    """Return the masked message of a Spark error with an error condition. None: the error has no condition."""
    condition = _asked(error, "getCondition")
    if not condition:
        return None
    text = _asked(error, "getMessage") or str(error)
    if _TRACEBACK in text:
        names = _PYTHON_ERROR.findall(text)
        return f"[{condition}] {names[-1] if names else 'an error'} in a Python worker"
    parameters = _asked(error, "getMessageParameters")
    if parameters is None:
        return f"[{condition}]"
    for name, value in sorted(dict(parameters).items(), key=lambda item: -len(item[1] or "")):
        if value and name not in _NAMES and not value.startswith(OWN_MESSAGE):
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _, name=name: f"<{name}>", text)
    return _first_line(text if text.startswith("[") else f"[{condition}] {text}")


def _asked(error: Any, method: str) -> Any:
    """Return the result of a method of a Spark error. None: no such method, as with most JVM exceptions."""
    try:
        return getattr(error, method)()
    except Exception:  # noqa: BLE001  # why: a failure here must not hide the error to report
        return None


def _masked(text: str) -> str:
    causes = _CAUSE.findall(text)  # for a failed task, only the innermost cause names the reason
    line = causes[-1] if causes else _first_line(text)
    condition = _CONDITION.match(line)
    return condition[0] if condition else _QUOTED.sub("'…'", line)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
