"""Lakes of older formats, as ``tests/lakes/make.py`` left them: each with the MongoDB that fed it."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

LAKES = Path(__file__).parents[1] / "lakes"


def unpack(number: int, folder: Path) -> Path:
    """I/O: unpacks the lake of that format into *folder*, with ``mongod`` and ``conf``.

    All files get the present time, so that Delta's clean-up of old logs does not interfere.
    """
    with tarfile.open(LAKES / f"format-{number}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    for file in folder.rglob("*"):
        os.utime(file)
    return folder / "lake"


def commits(lake: Path) -> dict[str, int]:
    """How many commits each table has."""
    logs = lake.glob("*/*/_delta_log")
    return {f"{log.parent.parent.name}.{log.parent.name}": len(list(log.glob("*.json"))) for log in logs}
