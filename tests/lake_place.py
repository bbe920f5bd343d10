"""Where the lakes of tests are. ``STRANDLINE_TEST_PLACE`` names another place than a folder for a whole test run.

The same suites then run there (`scripts/places.sh`). Tests that look at a folder's files have the mark ``folder``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

PLACE: Final = os.environ.get("STRANDLINE_TEST_PLACE", "folder")
NATIVE_PLACES: Final = ("folder", "s3")
"""Places in which delta-rs writes bronze."""


def lake_settings(root: Path | str) -> dict[str, Any]:
    """Return the section ``lake`` for a lake that would be at *root*, if it were in a folder."""
    if PLACE == "uri":
        return {"root": f"file://{Path(root).absolute()}"}
    return {"root": str(root)}
