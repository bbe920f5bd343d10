"""Allocators of memory for a process that runs for weeks: what it frees goes back to the system."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

_ARENAS: Final = 2
"""Heaps of the C library. Its default is eight for each core, and each keeps memory that is free."""
_M_ARENA_MAX: Final = -8  # of glibc's malloc.h


def give_memory_back() -> None:
    """Choose allocators for this process and for those that it starts, such as the JVM. A user's own choice stays.

    Must be called before pyarrow is imported: its C++ part reads the variable once. Its default allocator keeps memory
    for threads that have ended. Only for Linux: elsewhere nothing changes.
    """
    if sys.platform != "linux":
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    if "MALLOC_ARENA_MAX" not in os.environ:
        os.environ["MALLOC_ARENA_MAX"] = str(_ARENAS)  # glibc has read it for this process, but not for its children
        if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # other C libraries lack it
            mallopt(_M_ARENA_MAX, _ARENAS)
