"""Keys of the rows that the commits of a table have changed, read from the files that its log names. No Spark.

Source: delta-io/delta, PROTOCOL.md: a commit with ``cdc`` files has all its changes in them. Otherwise its added files
hold inserted rows, and its removed files deleted ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.table_folder import TableFolder


def changed_keys(folder: TableFolder, after: int, through: int, column: str) -> pa.ChunkedArray | None:
    """I/O: returns the distinct texts of *column* in rows that the versions (after, through] changed.

    None: the log no longer holds these commits, or a file is gone.
    """
    log, paths = LogFolder(folder), list[str]()
    for version in range(after + 1, through + 1):
        if (actions := log.actions(version)) is None:
            return None
        changes = [action["cdc"] for action in actions if "cdc" in action]
        rewritten = (action[kind] for action in actions for kind in ("add", "remove") if kind in action)
        paths += [file["path"] for file in changes or (one for one in rewritten if one["dataChange"])]
    try:
        return keys_in(folder, paths, column)
    except FileNotFoundError:
        return None


def keys_in(folder: TableFolder, paths: Iterable[str], column: str) -> pa.ChunkedArray:
    """I/O: returns the distinct texts of *column* in data files. Raises FileNotFoundError.

    Args:
        paths: Paths as the log has them: below the table, URL-encoded.
    """
    files = (pq.read_table(folder.source(unquote(path)), columns=[column])[column] for path in paths)
    chunks = [keys.cast(pa.string()).unique() for keys in files]
    return pa.chunked_array([pa.chunked_array(chunks, pa.string()).unique()], pa.string())
