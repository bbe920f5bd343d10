"""Rewrite data files sorted by collection. A reader of one collection then reads few row groups.

For plain Delta tables (reader 1, not partitioned). No Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from strandline.errors import ConfigurationError, ContractError, RetriableError, one_line
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.delta_rs_query import arrow_schema, arrow_table
from strandline.io.delta_log.parquet_file import DataFile, conformed, write_data_file
from strandline.io.delta_log.rewrite_commit import ActiveFile, commit_rewrite, is_committed
from strandline.io.delta_log.table_folder import TableFolder
from strandline.model.table_schemas import FEW_VALUES, SKIPPED_BY

SORT_KEY: Final = ("db", "collection", "position")

_MIB: Final = 1 << 20
_SORTED: Final = "sorted-"
"""Beginning of the names of the files that are written here."""
_RUN_BYTES: Final = 64 * _MIB
"""Bytes of Arrow that `maintain` sorts at once."""
_SMALL_RUN_BYTES: Final = 16 * _MIB
"""Bytes of Arrow that are sorted at once beside a capture, whose memory is small."""
_GROUP_BYTES: Final = _MIB // 2
"""Maximum bytes of Arrow of a row group with several collections. Each row group costs some 5 kB of Parquet footer,
which every reader of the file reads."""
_FILE_BYTES: Final = 128 * _MIB
"""Bytes at which a file ends. A smaller file is rewritten again, with later ones."""
_SMALL_FILE_BYTES: Final = _MIB
_COMMIT_BYTES: Final = 1 << 30
"""Bytes of files that one commit replaces."""
_READ_BYTES: Final = 4 * _MIB
"""Size of the batches that are read, in bytes, on average."""
_READ_ROWS: Final = 65_536
_BUFFER_BYTES: Final = _MIB
Change = Callable[[pa.RecordBatch], pa.RecordBatch]


def _unchanged(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def sort_files(folder: TableFolder) -> tuple[int, int] | None:
    """Rewrite the data files that are not sorted yet. A new file has runs of 64 MiB, sorted by `SORT_KEY`.

    A run has row groups of one large collection, or of several small ones. So a reader of one collection reads a row
    group or two of each run.

    I/O: reads files; writes new ones and syncs them; commits ``add`` and ``remove`` actions with ``dataChange: false``,
    a commit for each GiB of files. The old files stay for VACUUM. Files that are written here are known by their names:
    a full one is not rewritten again.

    Memory: about 550 MB. Disk: the size of the files of a commit.

    Effects on failure: the files of the failed commit stay as they are. Its new files are removed, by VACUUM in a
    store. Earlier commits stay. Calling again is safe. After a kill, VACUUM removes new files that no commit names.

    Returns:
        Numbers of files removed and added; (0, 0): all files are sorted. None: a concurrent commit removed files, or
        changed the table's schema, properties or protocol. Nothing was changed. If only some commits lost, the numbers
        of the others are returned.

    Raises:
        ConfigurationError: The table is not a plain one.
        ContractError: The rows that were written are not as many as the rows that were read.
        OSError: A file could not be read or written; the disk is full.
        RetriableError: The table cannot be opened.
    """
    removed, added, lost = 0, 0, False
    for files in _portions(_files(_open_table(folder))):
        new = _rewrite(folder, files, _RUN_BYTES)
        if new is None:
            lost = True
        else:
            removed, added = removed + len(files), added + new
    return None if lost and not removed else (removed, added)


def merge_small_files(folder: TableFolder, *, at_least: int) -> tuple[int, int] | None:
    """Merge the small files of batches, as `sort_files` does, in one commit.

    A capture makes one file per batch, and each commit costs more the more files there are.

    I/O: as `sort_files`, for files below 1 MiB that are not written here. Memory: about 100 MB.

    Args:
        at_least: Number of such files below which nothing is done.

    Returns:
        As `sort_files`.

    Raises:
        As `sort_files`.
    """
    files = _files(_open_table(folder))
    small = [file for file in files if file.size < _SMALL_FILE_BYTES and not file.name.startswith(_SORTED)]
    if len(small) < at_least:
        return 0, 0
    new = _rewrite(folder, small, _SMALL_RUN_BYTES)
    return None if new is None else (len(small), new)


def remove_rows(
    folder: TableFolder, gone: Mapping[str, np.ndarray], change: Change = _unchanged
) -> Iterator[tuple[int, int, int] | None]:
    """Rewrite files without some of their rows, as `sort_files` does, a commit for each GiB. Yield after each commit.

    I/O, memory, effects on failure: as `sort_files`. A reader of changes sees none: the rows were there before.

    Args:
        gone: For each file, by its path in the log: True for each row that goes, in the order of the file.
        change: Returns a batch of rows that stay as it is to be written. With it, nobody may read the old files again.

    Yields:
        Numbers of rows removed, files removed and files added. None: as `sort_files`, for the files of one commit.

    Raises:
        As `sort_files`.
    """
    portion: list[ActiveFile] = []
    files = [file for file in _files(_open_table(folder)) if file.path in gone]
    for number, file in enumerate(files, 1):
        portion.append(file)
        if number == len(files) or sum(one.size for one in portion) >= _COMMIT_BYTES:
            added = _rewrite(folder, portion, _RUN_BYTES, gone, change)
            rows = sum(int(gone[one.path].sum()) for one in portion)
            yield None if added is None else (rows, len(portion), added)
            portion = []


def key_columns(
    folder: TableFolder, schema: pa.Schema, is_needed: Callable[[Mapping[str, Any]], bool]
) -> Iterator[tuple[str, int, Iterator[pa.RecordBatch]]]:
    """Yield the data files of a table: path in the log, number of rows, and the rows with the columns of *schema*.

    I/O: reads the log, and files while their rows are read.

    Args:
        is_needed: Tells from a file's statistics (``min.batch``, ``max.position``…) whether it is read.

    Raises:
        RetriableError: The table cannot be opened.
    """
    actions = arrow_table(_open_table(folder).get_add_actions(flatten=True))
    for action in filter(is_needed, actions.to_pylist()):
        yield action["path"], action["num_records"], _batches(folder.source(unquote(action["path"])), schema)


def _open_table(folder: TableFolder) -> DeltaTable:
    try:
        table = folder.table()
    except (DeltaError, OSError) as error:
        raise RetriableError(
            f"{folder.uri} cannot be opened ({one_line(error)})",
            next_step="check the lake's folder and its permissions, then repeat the command",
        ) from error
    protocol = table.protocol()
    if protocol.min_reader_version > 1 or protocol.min_writer_version > 4 or table.metadata().partition_columns:
        raise ConfigurationError(
            f"{folder.uri} is no plain Delta table, so its files are not sorted (reader {protocol.min_reader_version},"
            f" writer {protocol.min_writer_version}, partitioned by {table.metadata().partition_columns or 'nothing'})",
            next_step="compact this table with Spark: OPTIMIZE",
        )
    return table


def _files(table: DeltaTable) -> list[ActiveFile]:
    """Return the table's data files, oldest first."""
    actions = arrow_table(table.get_add_actions(flatten=True)).select(["path", "size_bytes", "modification_time"])
    rows = sorted(actions.to_pylist(), key=lambda row: (row["modification_time"], row["path"]))
    return [ActiveFile(row["path"], row["size_bytes"]) for row in rows]


def _portions(files: Iterable[ActiveFile]) -> Iterator[list[ActiveFile]]:
    """Yield the files that one commit replaces: those that are not sorted, or not full."""
    portion: list[ActiveFile] = []
    size = 0
    for file in files:
        if file.name.startswith(_SORTED) and file.size >= _FILE_BYTES:
            continue
        portion.append(file)
        size += file.size
        if size >= _COMMIT_BYTES:
            yield portion
            portion, size = [], 0
    if len(portion) > 1 or (portion and not portion[0].name.startswith(_SORTED)):
        yield portion


def _rewrite(
    folder: TableFolder,
    files: Sequence[ActiveFile],
    run_bytes: int,
    gone: Mapping[str, np.ndarray] | None = None,
    change: Change = _unchanged,
) -> int | None:
    """I/O: rewrites *files*, without the rows that are *gone* (see `remove_rows`).

    Returns:
        Number of new files. None: another commit came first, nothing was changed.
    """
    table, log = _open_table(folder), LogFolder(folder)
    version, new = table.version(), list[DataFile]()
    try:
        _write(folder, arrow_schema(table), files, run_bytes, new, gone or {}, change)
        committed = commit_rewrite(log, version, files, new, sorted_by=SORT_KEY, erases=change is not _unchanged)
    except BaseException:
        if not folder.may_write_late and not is_committed(log, version, new):
            _remove(folder, new)
        raise
    if not committed and not is_committed(log, version, new):
        _remove(folder, new)
    return len(new) if committed else None


def _write(
    folder: TableFolder,
    schema: pa.Schema,
    files: Sequence[ActiveFile],
    run_bytes: int,
    new: list[DataFile],
    gone: Mapping[str, np.ndarray],
    change: Change,
) -> None:
    """I/O: writes the rows of *files* run by run. The files that are written are added to *new*, even on errors."""
    rows = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for file in files:
            for batch in _rest(folder, file, schema, gone.get(file.path)):
                rows += batch.num_rows
                yield change(batch)

    groups = (group for run in _sorted_runs(batches(), schema, run_bytes) for group in _row_groups(run))
    for first in groups:
        file = write_data_file(
            folder,
            schema,
            chain((first,), groups),
            statistics_of=[name for name in SKIPPED_BY if name in schema.names],
            dictionaries=FEW_VALUES,
            prefix=_SORTED,
            end_at=_FILE_BYTES,
        )
        new.append(file)
    if rows != (written := sum(file.rows for file in new)):
        raise ContractError(
            f"a sorted rewrite of {folder.uri} read {rows} rows and wrote {written}; the table is unchanged",
            next_step="report this defect of Strandline",
        )
    folder.sync("")  # the files' names


def _rest(
    folder: TableFolder, file: ActiveFile, schema: pa.Schema, gone: np.ndarray | None
) -> Iterator[pa.RecordBatch]:
    """I/O: yields the rows of *file* that are not *gone*."""
    if gone is not None and gone.all():
        return
    place = 0
    for batch in _batches(folder.source(unquote(file.path)), schema):
        yield batch if gone is None else batch.filter(pa.array(~gone[place : place + batch.num_rows]))
        place += batch.num_rows


def _batches(source: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """I/O: yields the rows of a data file with the columns of *schema*. Columns that the file lacks are null."""
    # pre_buffer, the default, would read whole row groups into memory
    with pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False, coerce_int96_timestamp_unit="us") as file:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            size = max(1, group.num_rows * _READ_BYTES // max(group.total_byte_size, 1))
            batches = file.iter_batches(
                min(size, _READ_ROWS), row_groups=[number], columns=schema.names, use_threads=False
            )
            for batch in batches:
                yield conformed(batch, schema)


def _sorted_runs(batches: Iterable[pa.RecordBatch], schema: pa.Schema, run_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of *batches* in batches of *run_bytes*, each sorted by `SORT_KEY`."""
    run: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        run.append(batch)
        size += batch.nbytes
        if size >= run_bytes:
            yield _sorted(run, schema)
            size = 0
    if run:
        yield _sorted(run, schema)


def _sorted(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of *batches* as one sorted batch, and empty the list: its memory is needed.

    Rows without a collection (control rows) come first. A missing position counts as the smallest. Rows with equal keys
    keep their order.
    """
    table = pa.Table.from_batches(batches, schema)
    batches.clear()
    (rows,) = table.combine_chunks().to_batches()
    del table
    keys = pa.table([*_collections(rows), pc.fill_null(rows["position"], "")], names=list(SORT_KEY))
    rows = rows.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in SORT_KEY]))
    pa.default_memory_pool().release_unused()  # the pool keeps the memory of the parts otherwise
    return rows


def _collections(rows: pa.RecordBatch) -> list[pa.Array]:
    """Return database and collection of each row, both empty for a row without a collection."""
    db, collection = (pc.fill_null(rows[name], "") for name in ("db", "collection"))
    in_collection = pc.and_(pc.not_equal(db, ""), pc.not_equal(collection, ""))
    return [pc.if_else(in_collection, column, "") for column in (db, collection)]


def _row_groups(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield sorted *rows* in parts of one large collection, or of several small ones."""
    begin = first = 0
    for end in [*_changes(*_collections(rows)), rows.num_rows]:
        if first > begin and rows.slice(begin, end - begin).nbytes > _GROUP_BYTES:
            yield rows.slice(begin, first - begin)
            begin = first
        first = end
    yield rows.slice(begin)


def _changes(*columns: pa.Array) -> list[int]:
    """Return the places at which the value of a column differs from the value before it."""
    first, second = (pc.not_equal(column[1:], column[:-1]) for column in columns)
    return [place + 1 for place in pc.indices_nonzero(pc.or_(first, second)).to_pylist()]


def _remove(table: TableFolder, new: Iterable[DataFile]) -> None:
    for file in new:
        table.remove(file.name)
