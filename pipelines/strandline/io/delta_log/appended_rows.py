"""Rows that commits appended to a table, read from the files that the commits name. No Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.delta_rs_query import arrow_table
from strandline.io.delta_log.parquet_file import Budget, TooLarge, conformed, read_data_file
from strandline.io.delta_log.plain_protocol import CLUSTERING_FEATURES, PLAIN_FEATURES, features_of
from strandline.io.delta_log.rewrite_commit import ERASES
from strandline.io.delta_log.table_folder import TableFolder

COMMIT_VERSION: Final = "_commit_version"
_ROWS, _BYTES = 5_000, 8 << 20
"""Limits of a part that is read at once. Bytes are those of all columns, not compressed."""
_KNOWN_ACTIONS: Final = frozenset({"add", "remove", "commitInfo", "metaData", "protocol", "txn", "domainMetadata"})
"""Actions that change no row, but for those of files that change data."""


@dataclass(frozen=True)
class AppendedFile:
    """A data file, and the version that appended it."""

    version: int
    path: str
    """Path as the log has it: below the table, URL-encoded."""
    size: int
    """Bytes."""
    rows: int
    part: int = 0
    parts: int = 1
    """Number of parts into which the row groups of the file are cut: *part* is one of them."""

    def cut(self, most_bytes: int) -> list[AppendedFile]:
        """Return the file in parts of about *most_bytes*, by `appended_parts`. Other functions read it as a whole."""
        parts = -(-self.size // most_bytes) or 1
        return [replace(self, size=self.size // parts, part=part, parts=parts) for part in range(parts)]


def appended_files(folder: TableFolder, after: int, through: int, most_rows: int) -> list[AppendedFile] | None:
    """I/O: returns the data files that the versions above *after* up to *through* appended.

    Rows that a compaction has written anew are left out.

    Returns:
        None if the rows are not known from these files: there are more than *most_rows*, log clean-up has removed a
        commit, or a commit did something else than to append, such as a RESTORE. Of all versions (*after* is -1), an
        erasure is such a commit.
    """
    files, rows = [], 0
    for version, action in _actions(LogFolder(folder), after, through):
        if action is None:
            return None
        count = json.loads(action.get("stats") or "{}").get("numRecords", most_rows + 1)
        files.append(AppendedFile(version, action["path"], action["size"], count))
        rows += count
        if rows > most_rows:
            return None
    return files


def files_of_version(folder: TableFolder, version: int, most_rows: int) -> list[AppendedFile] | None:
    """I/O: returns the data files of a *version* of an append-only table, as if it had appended them all.

    None: they have more than *most_rows*, or delta-rs does not read the version.
    """
    try:
        table = folder.table(version)
        if features_of(table) - PLAIN_FEATURES - CLUSTERING_FEATURES:
            return None
        files = arrow_table(table.get_add_actions(flatten=True))
    except DeltaError:
        return None
    counts = files["num_records"]
    if counts.null_count or (pc.sum(counts).as_py() or 0) > most_rows:
        return None
    columns = (files[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    return [AppendedFile(version, *file) for file in sorted(zip(*columns, strict=True))]


def appended_rows(
    folder: TableFolder, files: Iterable[AppendedFile], schema: pa.Schema, most_bytes: int
) -> pa.Table | None:
    """I/O: returns the rows of *files*, with ``_commit_version``. None: they have more bytes, not compressed.

    Args:
        schema: Columns to read. A column that a file lacks is null.

    Raises:
        FileNotFoundError: VACUUM has removed a file.
        ArrowException: A file is damaged.
    """
    budget = Budget(most_bytes)
    try:
        parts = [_with_version(read_data_file(folder, file.path, schema, budget), file.version) for file in files]
    except TooLarge:
        return None
    return pa.concat_tables([_empty(schema), *parts])


def appended_parts(
    folder: TableFolder, file: AppendedFile, schema: pa.Schema, equal: Mapping[str, str]
) -> Iterator[pa.Table]:
    """I/O: yields the rows of a file with ``_commit_version``, some megabytes at a time.

    Args:
        equal: Values by column. Row groups without rows that have them are left out, by their statistics.

    Raises:
        FileNotFoundError: VACUUM has removed the file.
        ArrowException: The file is damaged.
    """
    for rows in file_parts(folder, file.path, schema, equal, part=file.part, parts=file.parts):
        yield _with_version(pa.Table.from_batches([rows]), file.version)


def file_parts(
    folder: TableFolder,
    path: str,
    schema: pa.Schema,
    equal: Mapping[str, str] = MappingProxyType({}),
    *,
    part: int = 0,
    parts: int = 1,
) -> Iterator[pa.RecordBatch]:
    """I/O: yields the rows of a data file, some megabytes at a time. Errors: as `appended_parts`.

    Args:
        equal: As in `appended_parts`.
        part, parts: As in `AppendedFile`.
    """
    with pq.ParquetFile(folder.source(unquote(path)), coerce_int96_timestamp_unit="us") as parquet:
        groups = parquet.metadata.num_row_groups
        for number in range(groups * part // parts, groups * (part + 1) // parts):
            group = parquet.metadata.row_group(number)
            if not _may_hold(group, equal):
                continue
            count = min(_ROWS, max(1, _BYTES * group.num_rows // max(1, group.total_byte_size)))
            for rows in parquet.iter_batches(count, [number], columns=_paths(schema), use_threads=False):
                yield conformed(rows, schema)


def _paths(schema: pa.Schema) -> list[str]:
    """Return the columns of *schema*, and the fields of its structs, as Parquet names them."""
    return [
        path
        for field in schema
        for path in (
            [f"{field.name}.{one.name}" for one in field.type] if pa.types.is_struct(field.type) else [field.name]
        )
    ]


def _may_hold(group: pq.RowGroupMetaData, equal: Mapping[str, str]) -> bool:
    """Return False if the statistics tell that no row has the values."""
    for column in map(group.column, range(group.num_columns)):
        statistics, value = column.statistics, equal.get(column.path_in_schema)
        is_known = value is not None and statistics is not None and statistics.has_min_max
        if is_known and not statistics.min <= value <= statistics.max:
            return False
    return True


def _actions(log: LogFolder, after: int, through: int) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the added data files, each with its version. None: a commit is gone, or did something else."""
    for version in range(after + 1, through + 1):
        actions = log.actions(version)
        if actions is None:
            yield version, None
            return
        for action in actions:
            ((kind, body),) = action.items()
            if after < 0 and kind == "commitInfo" and ERASES in (body.get("operationParameters") or {}):
                yield version, None
            changes_data = bool(body.get("dataChange", True))
            if kind == "add" and changes_data and body.get("deletionVector") is None and not body["partitionValues"]:
                yield version, body
            elif (kind in ("add", "remove") and changes_data) or kind not in _KNOWN_ACTIONS:
                yield version, None


def _with_version(rows: pa.Table, version: int) -> pa.Table:
    return rows.append_column(COMMIT_VERSION, pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows))


def _empty(schema: pa.Schema) -> pa.Table:
    return _with_version(schema.empty_table(), 0)
