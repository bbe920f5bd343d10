"""Checks of the lake's folder on this machine: it can be written, and its file system has hard links. No Spark."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from strandline.errors import ConfigurationError


def unwritable(folder: str, problem: OSError | None) -> ConfigurationError:
    """Return the error for a lake folder that cannot be used."""
    reason = problem.strerror if problem is not None else "Spark does not see it"
    return ConfigurationError(
        f"the lake's folder {folder} cannot be written ({reason})", next_step="choose another lake.root"
    )


def require_writable(root: Path) -> None:
    """I/O: writes a file in the folder *root* and removes it. A folder that was not there before is removed again.

    Raises:
        ConfigurationError: It cannot be written.
    """
    try:
        probe_folder(root, lambda _: False)
    except OSError as error:
        raise unwritable(str(root), error) from None


def has_hard_links(root: Path) -> bool:
    """I/O: returns True if the file system of *root* has hard links, by which delta-rs commits. Raises OSError."""
    return probe_folder(root, _can_be_linked)


def _can_be_linked(file: str) -> bool:
    link = Path(f"{file}.link")
    try:
        os.link(file, link)
    except OSError:
        return False
    finally:
        link.unlink(missing_ok=True)
    return True


def probe_folder(root: Path, is_right: Callable[[str], bool]) -> bool:
    """I/O: returns *is_right* for the path of a temporary file in *root*. If False, removes folders that it created."""
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=root, prefix="strandline-", suffix=".probe") as probe:
        is_supported = is_right(probe.name)
    with suppress(OSError):  # somebody else may have written there meanwhile
        for folder in missing if not is_supported else ():
            folder.rmdir()
    return is_supported
