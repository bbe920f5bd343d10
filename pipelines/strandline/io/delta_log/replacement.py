"""The commit that replaces the whole content of a table by that of another one. No Spark.

Source: delta-io/delta, PROTOCOL.md: a commit may remove all files, add others, and change the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.io.delta_log.commits import REPLACEMENT, LogFolder
from strandline.io.delta_log.log_commit import commit_info, put_commit, removal
from strandline.io.delta_log.mergeable_table import MergeableTable


def replace_content(table: MergeableTable, by: MergeableTable, properties: Mapping[str, str]) -> bool:
    """I/O: one commit gives *table* the rows and columns of *by*, and these *properties*.

    The files of *by* are not read: they get a second name in the folder of *table*. *by* must not be used afterwards.

    Returns:
        False: another commit came first, or the log of *by* does not tell all its files. Nothing was changed.

    Effects on failure:
        Files that no commit names may remain. VACUUM removes them.
    """
    if (content := _content(by)) is None:
        return False
    metadata, additions = content
    for addition in additions:
        table.folder.take(addition["path"], by.folder)
    table.folder.sync("")
    size = sum(addition["size"] for addition in additions)
    info = commit_info(REPLACEMENT, {}, {"numFiles": len(additions), "numOutputBytes": size})
    now = info["commitInfo"]["timestamp"]
    removals = (removal(file.path, file.size, now, changes_data=True) for file in table.files)
    actions = [info, {"metaData": {**metadata, "configuration": dict(properties)}}, *removals]
    if put_commit(table.folder, table.version + 1, [*actions, *({"add": one} for one in additions)]):
        return True
    for addition in additions:
        table.folder.remove(addition["path"])
    return False


def _content(table: MergeableTable) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """I/O: returns the metadata and the ``add`` of each file of *table*. None: its log does not tell them."""
    log, metadata, files = LogFolder(table.folder), None, dict[str, dict[str, Any]]()
    for version in range(table.version + 1):
        for action in log.actions(version) or ():
            metadata = action.get("metaData", metadata)
            if "add" in action:
                files[action["add"]["path"]] = {**action["add"], "dataChange": True}
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
    is_whole = {*files} == {file.path for file in table.files} and not any("/" in path for path in files)
    return (metadata, list(files.values())) if metadata is not None and is_whole else None
