"""Recognition of failures of the lake's storage, in what Spark, delta-rs and the system raise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from deltalake.exceptions import DeltaError

from strandline.errors import LakeUnavailable, StrandlineError, one_line
from strandline.plain_text import java_causes, without_values

_CLASSES: Final = frozenset(
    {
        "java.io.IOException",
        "java.net.ConnectException",
        "java.net.NoRouteToHostException",
        "java.net.SocketException",
        "java.net.SocketTimeoutException",
        "java.net.UnknownHostException",
        "java.nio.file.AccessDeniedException",
        "java.nio.file.FileSystemException",
        "org.apache.hadoop.fs.FSError",
    }
)
_PACKAGES: Final = (
    "com.amazonaws.",
    "org.apache.hadoop.fs.azurebfs.",
    "org.apache.hadoop.fs.s3a.",
    "org.apache.hadoop.ipc.",
    "org.apache.hadoop.net.",
    "software.amazon.awssdk.",
)
"""Packages of the file systems and their clients. An exception class of these is a failure of the storage."""
_BEFORE: Final = r"(?:\n|\n: |Caused by: |\): |(?:Exception|Error): )"
_NAME: Final = r"(?:[a-z_]\w*\.)+[A-Z][\w$]*"
_JAVA_CLASS: Final = re.compile(rf"{_BEFORE}({_NAME}(?:Exception|Error))\b")
"""Name of an exception's class in a Java stack trace."""
_JAVA_MESSAGE: Final = re.compile(rf"{_BEFORE}({_NAME}(?:Exception|Error)): ([^\n]*\S)")
"""Name of an exception's class, and its message."""
_NAMES_IN_MESSAGE: Final = re.compile(rf"^(?:{_NAME}: )+")
"""Names of nested exceptions' classes, at the beginning of a message."""


def lake_unavailable(error: Exception) -> LakeUnavailable | None:
    """Return *error* as a failure of the lake's storage. None: it is another error.

    A failure of the storage is an error of delta-rs or of the system's files, or an error of Spark one of whose causes
    has a class of `_CLASSES` or of `_PACKAGES`. An error of Strandline says itself what it is.
    """
    if isinstance(error, LakeUnavailable):
        return error
    if isinstance(error, StrandlineError):
        return None
    if isinstance(error, OSError | DeltaError) or any(map(_is_of_storage, java_classes(error))):
        return LakeUnavailable(
            f"the lake cannot be read or written ({_storage_message(error) or one_line(error)}); nothing is lost",
            next_step="check the disk or the store, and its permissions, then repeat the command",
        )
    return None


def java_classes(error: Exception) -> set[str]:
    """Return the classes of the Java exceptions behind *error*. Empty: there is none.

    An exception of a task is among them only by the text of the stack trace.
    """
    classes = set(_JAVA_CLASS.findall(str(error)))
    for cause in _causes(error):
        classes.update(_JAVA_CLASS.findall(str(cause.toString())))
        classes.add(str(cause.getClass().getName()))
    return classes


def _storage_message(error: Exception) -> str:
    """Return the innermost message of the storage in a Java exception, without values. Empty: there is none."""
    texts = [str(error), *(f"Caused by: {cause.toString()}" for cause in _causes(error))]
    messages = [message for text in texts for name, message in _JAVA_MESSAGE.findall(text) if _is_of_storage(name)]
    return without_values(OSError(_NAMES_IN_MESSAGE.sub("", messages[-1]))) if messages else ""


def _causes(error: Exception) -> Iterator[Any]:
    """Yield the Java exceptions behind *error*, the outermost first."""
    return java_causes(getattr(error, "java_exception", None) or getattr(error, "_origin", None))


def _is_of_storage(name: str) -> bool:
    return name in _CLASSES or name.startswith(_PACKAGES)
