"""Probe of one Spark worker: its packages, its files, its way to MongoDB, and its clock.

It also runs on workers that lack this package. So it imports only Python's own modules at the top.
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
    """Return the place of this process, its packages, its problems, and its clock.

    I/O: imports packages; looks for *files*; sends one command to MongoDB.

    Args:
        uri: URI of MongoDB. It appears in no answer.
        files: Paths that must be readable here.
    """
    findings: dict[str, Any] = {
        "host": socket.gethostname(),
        "process": os.getppid(),  # all tasks of an executor have the same parent
        "python": ".".join(platform.python_version_tuple()[:2]),
        "packages": {},
        "problems": [f"{path} is not there" for path in files if not os.access(path, os.R_OK)],
    }
    for name in ("strandline", *NEEDED):
        try:
            findings["packages"][name] = getattr(importlib.import_module(name), "__version__", "")
        except ImportError:
            findings["packages"][name] = None
    findings["ahead"], problem = clock(uri)
    findings["problems"] += [problem] if problem else []
    return findings


def clock(uri: str) -> tuple[float | None, str]:
    """Return the lead of this clock over that of MongoDB's primary, in seconds, and the problem with the connection."""
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
            return ours - theirs.astimezone(UTC).timestamp(), ""
    except (OSError, PyMongoError, ValueError) as error:
        return None, f"MongoDB cannot be reached ({type(error).__name__})"
    except Exception as error:  # noqa: BLE001  # why: the clock need not be known, whatever the answer holds
        return None, f"MongoDB does not tell its time ({type(error).__name__})"
