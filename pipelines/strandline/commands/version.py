"""``strandline version``."""

from __future__ import annotations

from strandline import __version__
from strandline.commands.terminal import out


def version() -> None:
    """Print the version."""
    out.print(__version__)
