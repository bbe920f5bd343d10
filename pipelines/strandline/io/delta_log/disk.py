"""Files of this machine's disk that are there whole after a power cut, and that replace no other file. No Spark."""

from __future__ import annotations

import errno
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

_NO_HARD_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)


def create_file(file: Path, content: bytes) -> bool:
    """Write a file, unless it exists. It replaces no file, unlike a rename.

    I/O: writes a temporary file and syncs it; links it to the name *file*; removes the temporary name; syncs the
    folder. The file is on disk on return. A file system without hard links gets an exclusive create instead: there a
    reader may see the file while it is written.

    Effects on failure: an error before the link leaves no file. An error of the last sync leaves a file that readers
    see: look for it before a file that it names is removed.

    Returns:
        False if the file exists. Nothing was changed.

    Raises:
        OSError: The file system refused to write, or is full.
    """
    if file.exists():
        return False
    prepared = file.with_name(f".{file.stem}.{uuid.uuid4()}.tmp")
    try:
        _write(prepared, content)
        _put(prepared, file, content)
    except FileExistsError:
        return file.read_bytes() == content  # NFS repeats a link whose answer was lost
    finally:
        prepared.unlink(missing_ok=True)
    sync(file.parent)
    return True


def _write(file: Path, content: bytes) -> None:
    """Create a file that must not exist. After an error there is none."""
    with file.open("xb") as stream:
        try:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        except BaseException:
            file.unlink(missing_ok=True)
            raise


def _put(prepared: Path, file: Path, content: bytes) -> None:
    try:
        os.link(prepared, file)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        _write(file, content)


def sync(path: Path) -> None:
    """Sync a file or a folder. A file's name is on disk only after its folder is synced."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_since(folder: Path, seconds: float) -> int:
    """I/O: number of files in *folder* that were written in the last *seconds*. 0: there is no folder."""
    since, count = time.time() - seconds, 0
    with suppress(FileNotFoundError):
        for file in os.scandir(folder):
            with suppress(FileNotFoundError):  # a writer's temporary file
                count += file.stat().st_mtime >= since
    return count
