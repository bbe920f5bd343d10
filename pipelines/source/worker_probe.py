"""What one process of a Spark worker can do. It runs on workers that may lack this package, so it imports only Python's
own modules before it looks.
"""

from __future__ import annotations

import importlib
import os
import platform
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

NEEDED: Final = ("pyarrow", "pymongo", "bsonjs")
"""Packages that functions of this package import on a worker."""
_ANSWER_SECONDS: Final = 5


def probe(uri: str, files: Sequence[str]) -> dict[str, Any]:
    """Return what this process finds: its place, its packages, problems with them, and its clock.

    I/O: imports packages; looks for *files*; sends one command to MongoDB.

    Args:
        uri: URI of MongoDB. It appears in no answer.
        files: Paths that must be readable here.
    """
    found: dict[str, Any] = {
        "host": socket.gethostname(),
        "process": os.getppid(),  # all tasks of an executor have the same parent
        "python": ".".join(platform.python_version_tuple()[:2]),
        "packages": {},
        "problems": [f"{path} is not there" for path in files if not os.access(path, os.R_OK)],
    }
    for name in ("pipelines", *NEEDED):
        try:
            found["packages"][name] = getattr(importlib.import_module(name), "__version__", "")
        except ImportError:
            found["packages"][name] = None
    found["ahead"], problem = clock(uri)
    found["problems"] += [problem] if problem else []
    return found


def clock(uri: str) -> tuple[float | None, str]:
    """Return how far this clock is ahead of MongoDB's primary, in seconds, and what is wrong with the connection."""
    try:
        import pymongo
        from pymongo.errors import PyMongoError
    except ImportError:
        return None, ""  # told as a missing package
    try:
        with pymongo.timeout(_ANSWER_SECONDS), pymongo.MongoClient[Any](uri, tz_aware=True) as client:
            client.admin.command("hello")  # connects
            before = time.time()
            theirs: datetime = client.admin.command("hello")["localTime"]
            ours = (before + time.time()) / 2
    except (OSError, PyMongoError, ValueError) as error:
        return None, f"MongoDB cannot be reached ({type(error).__name__})"
    return ours - theirs.astimezone(UTC).timestamp(), ""
