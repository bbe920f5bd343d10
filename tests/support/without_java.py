"""Run the command in a process that finds no Java."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import source_settings
from pymongo.database import Database

COMMAND = Path(sys.executable).with_name("strandline")


def strandline(
    folder: Path, *arguments: str, preexec_fn: Callable[[], None] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in *folder*, with no Java on the PATH."""
    return subprocess.run(
        [str(COMMAND), *arguments],
        cwd=folder,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=preexec_fn,
    )


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Variables of a process that finds no Java."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "STRANDLINE", "SPARK"))}
    return kept | {"PATH": str(folder), "STRANDLINE_SOURCE__NAME": "test"} | more


def source_of(uri: str, database: Database[dict[str, Any]]) -> dict[str, str]:
    """Settings that name the source, as environment variables."""
    return source_settings(uri, database.name)


def output_of(folder: Path, *arguments: str, **source: str) -> str:
    """Run a command that must succeed. Return what it printed."""
    done = strandline(folder, *arguments, **source)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout
