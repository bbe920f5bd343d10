"""Files read while a block runs, as reported by inotify (Linux only). Of every process, without memory maps."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final

_ACCESS, _CLOSE_NOWRITE, _OVERFLOW, _ISDIR = 0x1, 0x10, 0x4000, 0x40000000
_EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_BUFFER = 1 << 20


class ReadWatch:
    """Recorder of files in *folders* (without subfolders) that were read, and of listings of these folders.

    Raises:
        OSError: The system is not Linux, or inotify failed.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self.files: set[Path] = set()
        """Files that were read. Set at the end of the block."""
        self.listings = 0
        """Number of times that a folder was listed. Set at the end of the block."""

    def __enter__(self) -> ReadWatch:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError("reads are counted by inotify, which needs Linux")
        self._queue = _checked(libc.inotify_init1(os.O_NONBLOCK))
        self._watched = {
            _checked(libc.inotify_add_watch(self._queue, bytes(folder), _ACCESS | _CLOSE_NOWRITE)): folder
            for folder in self._folders
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while events := os.read(self._queue, _BUFFER):
                self.files |= set(self._named(events))
        except BlockingIOError:  # the queue is empty
            pass
        finally:
            os.close(self._queue)

    def _named(self, events: bytes) -> Iterable[Path]:
        start = 0
        while start < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, start)
            start += _EVENT.size + length
            if mask & _OVERFLOW:
                raise OSError("inotify lost events: its queue was full")
            name = events[start - length : start].rstrip(b"\0").decode()
            self.listings += not name and bool(mask & _ISDIR and mask & _CLOSE_NOWRITE)
            # A file that is synced is opened and not read. Hadoop's checksums are hidden files.
            if name and mask & _ACCESS and not name.startswith(".") and not mask & _ISDIR:
                yield self._watched[watch] / name


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    return result
