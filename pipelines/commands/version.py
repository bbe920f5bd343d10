"""``strandline version``."""

from __future__ import annotations

from pipelines import __version__
from pipelines.commands.terminal import out


def version() -> None:
    """Print the version."""
    out.print(__version__)
