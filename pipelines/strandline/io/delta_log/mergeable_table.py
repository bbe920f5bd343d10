"""MERGE of rows into a table by delta-rs: one commit, with the change data feed. No Spark.

delta-rs writes the files that hold a matched key anew, as a whole. So their size is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, CommitProperties, DeltaTable, PostCommitHookProperties, Schema, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from strandline.errors import one_line
from strandline.io.delta_log.checked_columns import computes, is_checked
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.delta_rs_query import arrow_schema, arrow_table
from strandline.io.delta_log.file_statistics import STATISTICS, has_bounds
from strandline.io.delta_log.log_commit import addition, commit_info, put_commit
from strandline.io.delta_log.merge_memory import (
    GROUP_BYTES,
    LARGE_MERGE,
    SMALL_BYTES,
    ScannedFile,
    require_memory,
    rows_of_a_group,
)
from strandline.io.delta_log.parquet_file import (
    Budget,
    DataFile,
    OldTime,
    TooLarge,
    conformed,
    read_batches,
    refuse_old_times,
    up_to,
    write_data_file,
)
from strandline.io.delta_log.plain_protocol import PLAIN_FEATURES, features_of, is_plain
from strandline.io.delta_log.stored_files import (
    StoredFile,
    files_with,
    find_keys,
    groups_of,
    ranges_of,
    row_groups_with,
)
from strandline.io.delta_log.table_folder import LOG, TableFolder, commit_name
from strandline.io.delta_log.table_upkeep import checkpoint_interval, write_checkpoint
from strandline.io.telemetry.log_once import log_once
from strandline.model.merge_rule import NOTHING, Clause, Merged, MergeRule, assignments
from strandline.model.query import DATAFUSION

_log = logging.getLogger("strandline.tables")
ONLY_SPARK: Final = (DeltaError, pa.ArrowException, FileNotFoundError, TooLarge, OldTime)
"""Errors of a table or of rows that only Spark reads or writes. `MergeableTable` raises them before its commit."""
_SMALL_FILE: Final = 1 << 20
_MANY_FILES: Final = 32
_FILE_BYTES: Final = 128 << 20
"""Bytes of rows, not compressed, in a data file that `write` makes. A MERGE writes each file with a match anew."""
_READ_BYTES: Final = 32 << 20
"""Bytes of rows, not compressed, that are searched for keys at once."""
_FOUND_BYTES: Final = 128 << 20
"""Bytes of rows, not compressed, that have one of some keys, at most."""
_COMPACTED: Final = 8 << 20
"""Size of a file, in bytes, into which small files are compacted."""
_FINDS_FIELDS_BY_NAME: Final = int(pa.__version__.partition(".")[0]) >= 21
"""True: a cast finds the fields of a struct by their names. Before version 21, pyarrow refuses another order."""
_COMMIT: Final[Mapping[str, Any]] = {
    "commit_properties": CommitProperties(max_commit_retries=0),  # fails if another commit came after the opened one
    "post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
}


@dataclass(frozen=True)
class MergeableTable:
    """One version of a table. It can be merged once.

    Args:
        key: Column by whose file statistics files are found.
    """

    folder: TableFolder
    key: str
    properties: Mapping[str, str]
    schema: pa.Schema
    schema_text: str
    """Columns as the log has them: JSON that Spark reads."""
    _handle: DeltaTable
    _footers: dict[str, ScannedFile] = field(default_factory=dict, init=False, repr=False, compare=False)

    @staticmethod
    def open(folder: TableFolder, key: str) -> MergeableTable | None:
        """I/O: opens the newest version. None: there is no table, or only Spark can change it; the log says so once."""
        if not folder.is_table():
            return None
        try:
            handle = folder.table()
            if (obstacle := _obstacle(handle)) is None:
                properties = dict(handle.metadata().configuration)
                return MergeableTable(folder, key, properties, arrow_schema(handle), handle.schema().to_json(), handle)
        except ONLY_SPARK as error:
            obstacle = one_line(error)
        log_once(_log.name, "Spark changes %s, because delta-rs cannot: %s", folder.uri, obstacle)
        return None

    @property
    def version(self) -> int:
        return int(self._handle.version())

    @property
    def is_plain(self) -> bool:
        """True if the table has a protocol that delta-rs writes: see `make_plain`."""
        return is_plain(self._handle)

    @cached_property
    def _actions(self) -> pa.Table:
        """A row for each data file of the version: path, size and statistics."""
        return arrow_table(self._handle.get_add_actions(flatten=True))

    @cached_property
    def files(self) -> list[StoredFile]:
        """Data files of the version."""
        actions = self._actions
        bounds = [f"{statistic}.{self.key}" for statistic in ("min", "max")]
        is_text = any(pa.types.is_string(field.type) for field in self.schema if field.name == self.key)
        columns = ("path", "size_bytes", *(bounds if is_text else ()))  # Python has no year 10000
        names = [name for name in columns if name in actions.schema.names]
        return [
            StoredFile(row["path"], row["size_bytes"], *(row.get(bound) for bound in bounds))
            for row in actions.select(names).to_pylist()
        ]

    def may_hold_below(self, column: str, value: str) -> bool:
        """Return True if a row may have a smaller text in a *column*, by the statistics of the files."""
        if not value or not self.files:
            return False
        actions = self._actions
        if f"min.{column}" not in actions.schema.names:
            return True
        smallest = actions[f"min.{column}"]
        return bool(smallest.null_count or pc.any(pc.less(smallest, value)).as_py())

    def find_keys(self, keys: pa.ChunkedArray) -> list[tuple[StoredFile, pa.Array]]:
        """I/O: returns the files that hold one of the *keys*, each with these keys. Raises as `find_keys`."""
        return list(find_keys(self.folder, self.files, keys, self.key))

    def rows_with(self, keys: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table:
        """I/O: returns *columns* of the rows that have one of the *keys*.

        Raises TooLarge if these rows have more than 128 MiB.
        """
        schema, budget = self._schema_of(columns), Budget(_FOUND_BYTES)
        parts = [schema.empty_table()]
        for file, few in files_with(self.files, keys):
            row_groups = partial(row_groups_with, keys=few, column=self.key)
            batches = read_batches(self.folder, file.path, schema, row_groups=row_groups)
            while (first := next(batches, None)) is not None:
                rows = pa.Table.from_batches(up_to(_READ_BYTES, chain([first], batches)))
                rows = rows.filter(pc.is_in(rows[self.key], few))  # of many rows: it hashes all keys each time
                budget.spend(rows.nbytes)
                parts.append(rows)
        return pa.concat_tables(parts)

    def conformed(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return *columns* of *rows* with the types of the table. Columns that *rows* lack are null."""
        return conformed(rows, self._schema_of(columns))

    def _schema_of(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in columns])

    @property
    def _statistics(self) -> list[str]:
        """Columns with file statistics that the table names."""
        return [name for name in self.properties.get(STATISTICS, "").split(",") if name]

    @property
    def has_bounds(self) -> bool:
        """True if this process can make the statistics that the table names."""
        return all(name in self.schema.names and has_bounds(self.schema.field(name).type) for name in self._statistics)

    def add_columns(self, columns: pa.Schema, properties: Mapping[str, str]) -> bool:
        """I/O: one commit that adds *columns*, if any, one that sets *properties*. False: another commit came first.

        The table is plain (`make_plain`). Open it again to write these columns.

        Effects on failure:
            The columns may be there, without the properties.
        """
        try:
            if columns.names:
                self._handle.alter.add_columns(list(Schema.from_arrow(columns).fields), **_COMMIT)
            self._handle.alter.set_table_properties(dict(properties), raise_if_not_exists=False, **_COMMIT)
        except CommitFailedError:
            return False
        return True

    def set_properties(self, properties: Mapping[str, str]) -> bool:
        """I/O: one commit that sets *properties* in the newest version. It may be newer than this one.

        False: another commit came first, the table is not plain (`make_plain`), or it cannot be read or written.
        """
        try:
            self._handle.update_incremental()
            return self.is_plain and self.add_columns(pa.schema([]), properties)
        except DeltaError:
            return False

    def write(self, parts: Iterable[pa.Table]) -> list[DataFile]:
        """I/O: writes *parts* into data files of 128 MiB, not compressed. `load` makes them a part of the table.

        Args:
            parts: One row group each. Columns that they lack are null.
        """
        rows = (conformed(part, self.schema) for part in parts)
        files = []
        while (first := next(rows, None)) is not None:
            some = up_to(_FILE_BYTES, chain([first], rows))
            files.append(
                write_data_file(self.folder, self.schema, some, statistics_of=self._statistics, dictionaries=[])
            )
        return files

    def load(self, files: Sequence[DataFile]) -> Merged | None:
        """I/O: adds *files* from `write` in one commit, which the change data feed has as inserted rows.

        None: another commit came first. The files are removed.
        """
        count = sum(file.rows for file in files)
        self._sync(LogFolder(self.folder).checkpoint())
        self.folder.sync("")
        info = commit_info("MERGE", {}, {"numTargetRowsInserted": count, "numOutputRows": count})
        if not put_commit(self.folder, self.version + 1, [info, *(addition(one, changes_data=True) for one in files)]):
            for file in files:
                self.folder.remove(file.name)
            return None
        return Merged(count, 0, 0, commits=1)

    def shares(
        self, files: Sequence[StoredFile], keys: pa.ChunkedArray
    ) -> Iterator[tuple[Sequence[StoredFile], pa.ChunkedArray]]:
        """I/O: yields *files* in groups to merge one after the other, each with a mask of the *keys* that are its own.

        A file of a group has no key of another group. A group has 256 MiB, not compressed, or one file, or files that
        may have the same keys. So the files that delta-rs writes for it cover no more keys than before. A key that no
        file has belongs to the first group with a larger one, or to the last group.
        """
        groups = groups_of(files, lambda file: self._scanned(file.path).size, GROUP_BYTES)
        is_left = pc.is_valid(keys)
        for group in groups[:-1]:
            is_up_to = pc.less_equal(keys, max(file.largest or "" for file in group))
            yield group, pc.and_(is_left, is_up_to)
            is_left = pc.and_(is_left, pc.invert(is_up_to))
        yield groups[-1], is_left

    def _scanned(self, path: str) -> ScannedFile:
        """I/O: reads the footer of a data file, once."""
        if path not in self._footers:
            self._footers[path] = ScannedFile.read(self.folder, path)
        return self._footers[path]

    def merge(self, rows: pa.Table, rule: MergeRule, files: Sequence[StoredFile]) -> Merged | None:
        """MERGE *rows* (``s``) into the table (``t``).

        I/O: one commit, on disk on return, or none if no clause fits any row. `tidy` the table afterwards.

        Args:
            rows: Unique by the rule's keys. Columns that the table lacks are for the rule's conditions.
            files: Files that may hold a key of *rows*. Others are not changed.

        Returns:
            None: another commit came first. Nothing was changed.

        Raises:
            ONLY_SPARK: Only Spark can merge them. Nothing was changed.
        """
        if not rows.num_rows:
            return NOTHING
        refuse_old_times(rows)
        by_path = {file.path: file for file in files}
        near = [by_path.get(one.path, one) for one in self.files if any(map(one.overlaps, files))]
        scanned = [(self._scanned(file.path), file.first_match) for file in near]
        require_memory(scanned, rows.nbytes)
        total = sum(file.rows for file, _ in scanned), sum(file.size for file, _ in scanned)
        before = self.version
        if LogFolder(self.folder).checkpoint() > before:
            return None  # log clean-up may have removed the next commit: its number would then be free
        condition = f"{rule.condition(DATAFUSION)} AND ({ranges_of(files, self.key)})"
        merger = self._handle.merge(rows, condition, source_alias="s", target_alias="t", **_how(*total))
        for clause in rule.clauses:
            _add(merger, clause)
        try:
            with LARGE_MERGE if rows.nbytes + total[1] > SMALL_BYTES else nullcontext():
                metrics = merger.execute()
        except CommitFailedError:
            return None
        self._sync(before)
        return Merged.of(*(metrics[f"num_target_rows_{change}"] for change in ("inserted", "updated", "deleted")))

    def tidy(self) -> None:
        """I/O: compacts small files if there are many, and writes a checkpoint if it is due."""
        self._compact()
        self._write_checkpoint_if_due()

    def _compact(self) -> None:
        """I/O: compacts small files if there are many. A failure is left to the next MERGE, and to `maintain`."""
        files, before = replace(self).files, self.version
        if sum(file.size < _SMALL_FILE for file in files) < _MANY_FILES:
            return
        try:
            small = [self._scanned(file.path) for file in files if file.size < _COMPACTED]
            require_memory([(file, 0) for file in small], 0)  # delta-rs holds no row back
            how = _how(sum(file.rows for file in small), sum(file.size for file in small))
            self._handle.optimize.compact(target_size=_COMPACTED, **how)
        except ONLY_SPARK as error:
            _log.info("%s: small files are not compacted now (%s)", self.folder.uri, one_line(error))
            return
        self._sync(before)

    def _sync(self, after: int) -> None:
        """I/O: brings the commits after a version and their files to the disk. delta-rs syncs nothing."""
        log = LogFolder(self.folder)
        for version in range(after + 1, self.version + 1):
            actions = log.actions(version) or []
            files = [action[kind]["path"] for action in actions for kind in ("add", "cdc") if kind in action]
            folders = {"", *(name.rpartition("/")[0] for name in files)}
            self.folder.sync(*files, *folders, commit_name(version), LOG)

    def _write_checkpoint_if_due(self) -> None:
        log = LogFolder(self.folder)
        if log.newest() - log.checkpoint() < checkpoint_interval(dict(self.properties)):
            return
        try:
            write_checkpoint(self.folder)
        except Exception as error:  # noqa: BLE001  # why: the library raises a bare Exception for a file that it cannot read
            _log.warning(
                "%s: no checkpoint was written, the next one is tried later (%s)", self.folder.uri, one_line(error)
            )


def _how(rows: int, size: int) -> dict[str, Any]:
    """Return how delta-rs writes and commits files for *rows* rows of *size* bytes.

    No dictionaries: then a footer tells the bytes of its rows.
    """
    columns = ColumnProperties(dictionary_enabled=False)
    writer = WriterProperties(
        compression="ZSTD",
        compression_level=1,
        max_row_group_size=rows_of_a_group(rows, size),
        default_column_properties=columns,
    )
    return {"writer_properties": writer, **_COMMIT}


def _add(merger: Any, clause: Clause) -> None:
    values, when = assignments(clause, DATAFUSION), clause.condition(DATAFUSION) or None
    if clause.values is None:
        (merger.when_matched_delete if clause.rows == "matched" else merger.when_not_matched_by_source_delete)(when)
    elif clause.rows == "new":
        merger.when_not_matched_insert(values, when)
    else:
        merger.when_matched_update(values, when)


def _obstacle(handle: DeltaTable) -> str | None:
    """Return the reason why only Spark can change the table. None: delta-rs can.

    Raises:
        ONLY_SPARK: delta-rs cannot read it.
    """
    if unknown := features_of(handle) - PLAIN_FEATURES:
        return f"it does not write {', '.join(sorted(unknown))}"
    metadata, types = handle.metadata(), arrow_schema(handle).types
    if metadata.partition_columns or is_checked(metadata.configuration) or computes(handle.schema().to_json()):
        return "the table has partitions, constraints, or columns that a writer checks or computes"
    if not _FINDS_FIELDS_BY_NAME and any(map(pa.types.is_nested, types)):
        return f"pyarrow {pa.__version__} does not find fields of documents by their names"
    return "a column has no type" if any(map(pa.types.is_null, types)) else None
