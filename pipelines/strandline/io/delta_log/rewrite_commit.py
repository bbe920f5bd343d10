"""The commit of a rewrite: new data files in the place of others, with the same rows. No Spark.

Source: delta-io/delta, PROTOCOL.md: add and remove actions; ``dataChange: false`` keeps them out of change data feeds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.log_commit import addition, commit_info, put_commit, removal
from strandline.io.delta_log.parquet_file import DataFile

ERASES: Final = "erases"
"""Parameter of a commit after which nobody may read the files that it replaces."""


@dataclass(frozen=True)
class ActiveFile:
    """A data file of the table's newest version."""

    path: str
    """Path as the log has it: below the table, URL-encoded."""
    size: int
    """Bytes."""

    @property
    def name(self) -> str:
        """Name of the file, without its folder."""
        return unquote(self.path).rpartition("/")[2]


def commit_rewrite(
    log: LogFolder,
    version: int,
    replaced: Sequence[ActiveFile],
    new: Sequence[DataFile],
    *,
    sorted_by: Sequence[str],
    erases: bool = False,
) -> bool:
    """I/O: commits *new* in the place of *replaced*, as the next version that is free. Raises as `put_commit`.

    Concurrent commits after *version* are read. An append is no conflict.

    Effects on failure: as `put_commit`. Ask `is_committed` before the new files are removed.

    Args:
        version: The version whose files were read.
        new: Files whose content and names are on disk.
        erases: Nobody may read the rows of the replaced files any more, although they are those of older commits.

    Returns:
        False if a concurrent commit removed a replaced file, or changed the table's metadata or protocol, or if log
        clean-up removed a concurrent commit. Nothing was changed.
    """
    actions = _actions(replaced, new, sorted_by, {ERASES: "true"} if erases else {})
    paths = {unquote(file.path) for file in replaced}
    while True:
        version += 1
        if put_commit(log.folder, version, actions):
            return True
        if _conflicts(log.actions(version), paths):
            return False


def _conflicts(actions: Iterable[Mapping[str, Any]] | None, replaced: Collection[str]) -> bool:
    """Return True if a concurrent commit removed a replaced file, or changed the table. None: its log is gone."""
    return actions is None or any(
        "metaData" in action
        or "protocol" in action
        or ("remove" in action and unquote(action["remove"]["path"]) in replaced)
        for action in actions
    )


def is_committed(log: LogFolder, version: int, new: Sequence[DataFile]) -> bool:
    """I/O: returns True if a commit after *version* names one of the *new* files, or if the log does not tell."""
    names, newest = {file.name for file in new}, log.newest()
    if newest < version:
        return True
    return any(
        "add" in action and action["add"]["path"] in names
        for later in range(version + 1, newest + 1)
        for action in log.actions(later) or ()
    )


def _actions(
    replaced: Sequence[ActiveFile], new: Sequence[DataFile], sorted_by: Sequence[str], more: Mapping[str, str]
) -> list[dict[str, Any]]:
    metrics = {
        "numRemovedFiles": len(replaced),
        "numRemovedBytes": sum(file.size for file in replaced),
        "numAddedFiles": len(new),
        "numAddedBytes": sum(file.size for file in new),
    }
    info = commit_info("OPTIMIZE", {"predicate": "[]", "sortedBy": json.dumps(sorted_by), **more}, metrics)
    now = info["commitInfo"]["timestamp"]
    removals = (removal(file.path, file.size, now, changes_data=False) for file in replaced)
    return [info, *removals, *(addition(file, changes_data=False) for file in new)]
