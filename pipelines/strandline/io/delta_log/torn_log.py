"""Repair a table's log after a power cut. No Spark.

Writers of a Delta log put whole files in place. So while the machine runs, no half-written file is visible. A power cut
may leave the newest commit or checkpoint empty or cut short, because not every writer syncs it first. Such a file is
renamed, so that readers ignore it. The native engine had not reported a commit that it had not synced.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from strandline.io.delta_log.disk import sync

_PARQUET_ENDS: Final = b"PAR1"
_log = logging.getLogger("strandline.tables")


def repair_log(log: Path) -> None:
    """I/O: renames a half written newest commit or checkpoint to ``.<name>.torn``, so that readers ignore it."""
    pointer = log / "_last_checkpoint"
    for checkpoint in sorted(log.glob("*.checkpoint*.parquet"))[-1:]:
        if not _ends_whole(checkpoint):
            pointer.unlink(missing_ok=True)
            _put_aside(checkpoint)
    if pointer.exists() and not _is_json(pointer):
        pointer.unlink()
    for commit in sorted(log.glob(f"{'[0-9]' * 20}.json"))[-1:]:
        if not _is_json(commit):
            _put_aside(commit)


def _ends_whole(checkpoint: Path) -> bool:
    with checkpoint.open("rb") as file:
        file.seek(max(0, checkpoint.stat().st_size - len(_PARQUET_ENDS)))
        return file.read() == _PARQUET_ENDS


def _put_aside(file: Path) -> None:
    _log.warning("%s is half written, as after a power cut, and is put aside; nothing was reported from it", file)
    file.rename(file.with_name(f".{file.name}.torn"))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum: Spark would refuse the next file
    sync(file.parent)


def _is_json(file: Path) -> bool:
    """Return True if the file has at least one line, and every line is JSON."""
    try:
        return bool([json.loads(line) for line in file.read_text("utf-8").split("\n") if line])
    except ValueError:
        return False
