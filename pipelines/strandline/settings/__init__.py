"""Settings of the program."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DEFAULT_CONF: Final = Path("conf")
"""Folder of the configuration files, unless an option or ``STRANDLINE_CONF`` names another."""
