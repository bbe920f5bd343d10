"""Keys of the rows that the commits of a table have changed, read from the files that its log names. No Spark.

Source: delta-io/delta, PROTOCOL.md: a commit with ``cdc`` files has all its changes in them. Otherwise its added files
hold inserted rows, and its removed files deleted ones.
"""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.table_folder import TableFolder


def changed_keys(folder: TableFolder, after: int, through: int, column: str) -> pa.ChunkedArray | None:
    """I/O: returns the distinct texts of *column* in rows that the versions (after, through] changed.

    None: the log no longer holds these commits, or a file is gone.
    """
    log, chunks = LogFolder(folder), list[pa.Array]()
    for version in range(after + 1, through + 1):
        if (actions := log.actions(version)) is None:
            return None
        changes = [action["cdc"] for action in actions if "cdc" in action]
        rewritten = (action[kind] for action in actions for kind in ("add", "remove") if kind in action)
        for file in changes or (one for one in rewritten if one["dataChange"]):
            try:
                rows = pq.read_table(folder.source(unquote(file["path"])), columns=[column])
            except FileNotFoundError:
                return None
            chunks.append(rows[column].cast(pa.string()).unique())
    return pa.chunked_array(chunks, pa.string()).unique() if chunks else pa.array([], pa.string())
