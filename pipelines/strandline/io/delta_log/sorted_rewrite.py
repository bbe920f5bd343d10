"""Rewrite the data files of closed days sorted by collection. A reader of one collection then opens few files.

For plain Delta tables (reader 1, not partitioned). No Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from strandline.errors import ConfigurationError, ContractError, RetriableError, one_line
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.delta_rs_query import arrow_schema, arrow_table
from strandline.io.delta_log.parquet_file import DataFile, conformed, write_data_file
from strandline.io.delta_log.rewrite_commit import ActiveFile, commit_rewrite, is_committed
from strandline.io.delta_log.sorted_rows import SORT_KEY, GatheredRows, Sizes
from strandline.io.delta_log.table_folder import TableFolder
from strandline.model.table_schemas import FEW_VALUES, SKIPPED_BY

_SORTED: Final = "sorted-"
_MERGED: Final = "merged-"
_SMALL_BYTES: Final = 1 << 20
_SMALL_RUN: Final = Sizes(run=16 << 20, row_group=16 << 20)
_DEFAULT_SIZES: Final = Sizes()
_READ_BYTES: Final = 4 << 20
"""Size of the batches that are read, in bytes, on average."""
_READ_ROWS: Final = 65_536
_BUFFER_BYTES: Final = 1 << 20
_READ_OF_ADD: Final = (
    *("path", "size_bytes", "modification_time"),
    *(f"{statistic}.{name}" for statistic in ("min", "max", "null_count") for name in ("db", "collection")),
)


@dataclass(frozen=True)
class _Work:
    """Files to rewrite, and the version that was read."""

    table: TableFolder
    version: int
    schema: pa.Schema
    files: Sequence[ActiveFile]
    prefix: str
    """Beginning of the names of the new files."""

    @property
    def log(self) -> LogFolder:
        return LogFolder(self.table)


def rewrite_closed_days(folder: TableFolder, *, today: date, sizes: Sizes = _DEFAULT_SIZES) -> tuple[int, int] | None:
    """Rewrite the data files of each UTC day before *today* sorted by (db, collection, position). One commit per day.

    I/O: reads a day's files; spills their rows to an unnamed file in *folder*; writes sorted files; syncs them; commits
    ``add`` and ``remove`` actions with ``dataChange: false``. The old files stay for VACUUM. A file's day is the day of
    its modification time. Files of an earlier rewrite are known by their names, so a day is rewritten once.

    Memory: about 450 MB with the default sizes. With thousands of small collections, 128 KiB more for each run. Disk:
    the size of the day's files twice: for the new files, and for the unnamed file while the rewrite runs.

    Effects on failure: the day of the failure is unchanged. Its new files are removed, by VACUUM in a store. Earlier
    days stay rewritten.
    Calling again is safe. After a kill, VACUUM removes new files that no commit names.

    Returns:
        Numbers of files removed and added; (0, 0): every closed day is sorted already. None: a concurrent commit
        removed files of the day, or changed the table's schema, properties or protocol. Nothing was changed. If only
        some days were lost to such commits, the numbers of the other days are returned.

    Raises:
        ConfigurationError: The table is not a plain one.
        ContractError: The rows that were written are not as many as the rows that were read.
        OSError: A file could not be read or written; the disk is full.
        RetriableError: The table cannot be opened.
    """
    removed, added, lost = 0, 0, False
    for day in sorted(_unsorted(_opened(folder), today)):
        work = _work_of(folder, day, today)
        if work is None:
            continue
        done = _rewrite(work, sizes)
        if done is None:
            lost = True
        else:
            removed, added = removed + len(work.files), added + done
    return None if lost and not removed else (removed, added)


def merge_small_files(folder: TableFolder, *, at_least: int) -> tuple[int, int] | None:
    """Merge the small files of batches into one, sorted by (db, collection, position). One commit.

    A capture makes one file per batch, and each commit costs more the more files there are. `rewrite_closed_days` takes
    merged files as it takes others.

    I/O: as `rewrite_closed_days`, for files below 1 MiB that no merge and no rewrite wrote. Memory: about 100 MB.

    Args:
        at_least: Number of such files below which nothing is done.

    Returns:
        As `rewrite_closed_days`.

    Raises:
        As `rewrite_closed_days`.
    """
    table = _opened(folder)
    small = [
        file for file in _files(table) if file.size < _SMALL_BYTES and not file.name.startswith((_SORTED, _MERGED))
    ]
    if len(small) < at_least:
        return 0, 0
    done = _rewrite(_work_on(folder, table, small, _MERGED), _SMALL_RUN)
    return None if done is None else (len(small), done)


def _opened(folder: TableFolder) -> DeltaTable:
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
            f"{folder.uri} is no plain Delta table, so its days are not sorted (reader {protocol.min_reader_version},"
            f" writer {protocol.min_writer_version}, partitioned by {table.metadata().partition_columns or 'nothing'})",
            next_step="compact this table with Spark: OPTIMIZE",
        )
    return table


def _unsorted(table: DeltaTable, today: date) -> dict[date, list[ActiveFile]]:
    """Return the files of closed days that are to be rewritten, by day."""
    days: defaultdict[date, list[ActiveFile]] = defaultdict(list)
    for file in _files(table):
        if (day := file.modified.date()) < today and not file.name.startswith(_SORTED):
            days[day].append(file)
    return {day: files for day, files in days.items() if len(files) > 1 or not files[0].one_collection}


def _files(table: DeltaTable) -> list[ActiveFile]:
    """Return the table's data files, oldest first."""
    actions = arrow_table(table.get_add_actions(flatten=True))
    rows = actions.select([name for name in _READ_OF_ADD if name in actions.schema.names]).to_pylist()
    return sorted(map(_active_file, rows), key=lambda file: (file.modified, file.path))


def _active_file(row: Mapping[str, Any]) -> ActiveFile:
    bounds = [(row.get(f"min.{name}"), row.get(f"max.{name}")) for name in ("db", "collection")]
    return ActiveFile(
        row["path"],
        row["size_bytes"],
        datetime.fromtimestamp(row["modification_time"] / 1000, UTC),
        all(smallest and smallest == largest for smallest, largest in bounds)
        and not any(row.get(f"null_count.{name}", 1) for name in ("db", "collection")),
    )


def _work_of(folder: TableFolder, day: date, today: date) -> _Work | None:
    """I/O: opens the table's newest version. None: nothing of *day* is left to do."""
    table = _opened(folder)
    files = _unsorted(table, today).get(day)
    if not files:
        return None
    return _work_on(folder, table, files, _SORTED)


def _work_on(folder: TableFolder, table: DeltaTable, files: Sequence[ActiveFile], prefix: str) -> _Work:
    return _Work(folder, table.version(), arrow_schema(table), files, prefix)


def _rewrite(work: _Work, sizes: Sizes) -> int | None:
    """I/O: rewrites a work. Return the number of new files. None: another commit came first, nothing was changed."""
    new: list[DataFile] = []
    try:
        _write(work, sizes, new)
        committed = commit_rewrite(work.log, work.version, work.files, new, sorted_by=SORT_KEY)
    except BaseException:
        if not work.table.may_write_late and not is_committed(work.log, work.version, new):
            _remove(work.table, new)
        raise
    if not committed and not is_committed(work.log, work.version, new):
        _remove(work.table, new)
    return len(new) if committed else None


def _write(work: _Work, sizes: Sizes, new: list[DataFile]) -> None:
    """I/O: writes the rows as sorted files. The files that are written are added to *new*, even on errors."""
    with GatheredRows(work.table.scratch, work.schema, sizes) as gathered:
        for file in work.files:
            for batch in _batches(work.table.source(unquote(file.path)), work.schema):
                gathered.add(batch)
        rows, groups = 0, gathered.row_groups()
        while rows < gathered.rows:
            new.append(_write_file(work, groups, sizes.file))
            rows += new[-1].rows
            if not new[-1].rows:  # no rows are left
                break
    if rows != gathered.rows:
        raise ContractError(
            f"a sorted rewrite of {work.table.uri} read {gathered.rows} rows and wrote {rows}; the table is unchanged",
            next_step="report this defect of Strandline",
        )
    work.table.sync("")  # the files' names


def _write_file(work: _Work, groups: Iterator[pa.RecordBatch], end_at: int) -> DataFile:
    return write_data_file(
        work.table,
        work.schema,
        groups,
        statistics_of=[name for name in SKIPPED_BY if name in work.schema.names],
        dictionaries=FEW_VALUES,
        prefix=work.prefix,
        end_at=end_at,
    )


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


def _remove(table: TableFolder, new: Iterable[DataFile]) -> None:
    for file in new:
        table.remove(file.name)
