"""Checksum files that are left over: Spark writes them, and delta-rs removes only what they belong to. Pure.

Hadoop writes ``.NAME.crc`` beside each file of a folder. Delta writes ``VERSION.crc`` beside each commit, in any place.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_OF_FILE: Final = re.compile(r"\.(.+)\.crc")
_OF_VERSION: Final = re.compile(r"(\d{20})\.crc")


def left_over(names: Collection[str], checkpoint: int) -> set[str]:
    """Return the checksum files among *names* whose file is gone.

    Args:
        names: Names of all files in one folder.
        checkpoint: Version of the newest checkpoint. Log clean-up removes only older commits.
    """
    present = set(names)
    versions = {name: match[1] for name in names if (match := _OF_VERSION.fullmatch(name))}
    gone = {
        name for name, version in versions.items() if int(version) < checkpoint and f"{version}.json" not in present
    }
    present -= gone
    files = {name: match[1] for name in names if (match := _OF_FILE.fullmatch(name))}
    return gone | {name for name, file in files.items() if file not in present}
