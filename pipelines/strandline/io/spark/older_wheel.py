"""A wheel of a preview that is still installed: its package was `pipelines`, a name that other projects use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_FILES: Final = ("cli.py", "spark_source.py", "bronze/envelope.py")
"""Files of the preview's package. No other package `pipelines` has all of them."""
REMEDY: Final = "python -m pip uninstall strandline, then install this version again"


def older_wheel() -> str | None:
    """Return a note about an installed preview. None: there is none. I/O: looks for a few files on Python's path."""
    for folder in map(Path, sys.path):
        if all((folder / "pipelines" / file).is_file() for file in _FILES):
            return f"{folder} holds an older wheel of strandline, whose package pipelines hides modules of that name"
    return None
