"""Files of the demo's project: SQL of gold, and suites of expectations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

GOLD: Final = Path(__file__).parent / "gold"
QUALITY: Final = Path(__file__).parent / "quality"
