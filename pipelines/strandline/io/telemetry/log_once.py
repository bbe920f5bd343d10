"""Log lines that a process writes once, although it comes to the same conclusion in each of its runs."""

from __future__ import annotations

import logging
from functools import lru_cache


@lru_cache(maxsize=10_000)
def log_once(logger: str, message: str, *values: str) -> None:
    """I/O: logs *message* with *values* as INFO, unless this process has logged it already."""
    logging.getLogger(logger).info(message, *values)
