"""Run the command in a process that cannot import some packages, as after ``pip install strandline``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

OF_SPARK: Final = "pyspark py4j delta pandas great_expectations grpc polars duckdb"
"""Packages of extras, with which Spark, checks and readers work."""
_COMMAND: Final = """
import os, sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

hidden = os.environ["HIDDEN"].split()

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Hidden() if finder is PathFinder else finder for finder in sys.meta_path]
from strandline.cli import main
main()
"""


def without_packages(
    folder: Path, *arguments: str, hidden: str = OF_SPARK, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in *folder*, in a process that does not find the packages *hidden*, and no Java."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "STRANDLINE", "SPARK"))}
    return subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments],
        cwd=folder,
        env=kept | {"HIDDEN": hidden, "PATH": str(folder)} | more,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
