"""Folders of the demo project: gold SQL files and expectation suites."""

from __future__ import annotations

from pathlib import Path
from typing import Final

GOLD: Final = Path(__file__).parent / "gold"
QUALITY: Final = Path(__file__).parent / "quality"
