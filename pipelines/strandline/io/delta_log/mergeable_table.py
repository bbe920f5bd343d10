"""MERGE of rows into a table by delta-rs: one commit, with the change data feed. No Spark.

delta-rs writes the files that hold a matched key anew, as a whole. So their size is bounded.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from strandline.errors import one_line
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.delta_rs_query import arrow_schema, arrow_table
from strandline.io.delta_log.file_statistics import STATISTICS, has_bounds
from strandline.io.delta_log.log_commit import addition, commit_info, put_commit
from strandline.io.delta_log.parquet_file import (
    Budget,
    DataFile,
    OldTime,
    TooLarge,
    conformed,
    read_batches,
    read_data_file,
    refuse_old_times,
    write_data_file,
)
from strandline.io.delta_log.plain_protocol import PLAIN_FEATURES, features_of
from strandline.io.delta_log.table_folder import LOG, TableFolder, commit_name
from strandline.io.delta_log.table_upkeep import checkpoint_interval, write_checkpoint
from strandline.io.telemetry.log_once import log_once
from strandline.model.merge_rule import NOTHING, Clause, Merged, MergeRule, assignments
from strandline.model.query import DATAFUSION

_log = logging.getLogger("strandline.tables")
ONLY_SPARK: Final = (DeltaError, pa.ArrowException, FileNotFoundError, TooLarge, OldTime)
"""Errors of a table or of rows that only Spark reads or writes. `MergeableTable` raises them before its commit."""
MOST_BYTES: Final = 64 << 20
"""Bytes of rows, not compressed, that a MERGE reads at most, with those of its source. Above it, Spark is quicker."""
_SMALL_FILE: Final = 1 << 20
_MANY_FILES: Final = 32
_LARGE_FILE: Final = 128 << 20
"""Size of a data file, in bytes, at which the next one begins."""
_COMPACTED: Final = 8 << 20
"""Size of a file, in bytes, into which small files are compacted."""
_COMPUTED: Final = (
    *("delta.invariants", "delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT"),
    "__CHAR_VARCHAR_TYPE_STRING",
)
_NOT_NULL: Final = '"nullable":false'
"""Keys of a column's metadata, and a part of its definition, that tell a writer to check or to compute values."""
_FINDS_FIELDS_BY_NAME: Final = int(pa.__version__.partition(".")[0]) >= 21
"""True: a cast finds the fields of a struct by their names. Before version 21, pyarrow refuses another order."""
_HOW: Final[Mapping[str, Any]] = {
    "writer_properties": WriterProperties(compression="ZSTD", compression_level=1),
    "commit_properties": CommitProperties(max_commit_retries=0),  # fails if another commit came after the opened one
    "post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
}


@dataclass(frozen=True)
class StoredFile:
    """A data file of the opened version."""

    path: str
    """Path as the log has it: below the table, URL-encoded."""
    size: int
    """Bytes."""
    smallest: str | None
    largest: str | None
    """Bounds of the key column. None: unknown, or no text."""


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

    @cached_property
    def files(self) -> list[StoredFile]:
        """Data files of the version."""
        actions = arrow_table(self._handle.get_add_actions(flatten=True))
        bounds = [f"{statistic}.{self.key}" for statistic in ("min", "max")]
        is_text = any(pa.types.is_string(field.type) for field in self.schema if field.name == self.key)
        columns = ("path", "size_bytes", *(bounds if is_text else ()))  # Python has no year 10000
        names = [name for name in columns if name in actions.schema.names]
        return [
            StoredFile(row["path"], row["size_bytes"], *(row.get(bound) for bound in bounds))
            for row in actions.select(names).to_pylist()
        ]

    def files_with(self, keys: Sequence[str]) -> list[StoredFile]:
        """Return the files that may hold one of the sorted *keys*, by their statistics."""

        def may_hold(file: StoredFile) -> bool:
            if file.smallest is None or file.largest is None:
                return True
            first = bisect_left(keys, file.smallest)
            return first < len(keys) and keys[first] <= file.largest

        return [file for file in self.files if may_hold(file)]

    def rows_with(self, keys: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """I/O: returns *columns* of the rows that have one of the sorted *keys*."""
        schema, listed, budget = self._schema_of(columns), pa.array(keys, pa.string()), Budget(MOST_BYTES)
        parts = (read_data_file(self.folder, file.path, schema, budget) for file in self.files_with(keys))
        return pa.concat_tables(
            [schema.empty_table(), *(part.filter(pc.is_in(part[self.key], listed)) for part in parts)]
        )

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
        """I/O: one commit that adds *columns*, one that sets *properties*. False: another commit came first.

        The table is plain (`make_plain`). Open it again to write these columns.

        Effects on failure:
            The columns may be there, without the properties.
        """
        how = {name: _HOW[name] for name in ("commit_properties", "post_commithook_properties")}
        try:
            self._handle.alter.add_columns(list(Schema.from_arrow(columns).fields), **how)
            self._handle.alter.set_table_properties(dict(properties), raise_if_not_exists=False, **how)
        except CommitFailedError:
            return False
        return True

    def write(self, parts: Iterable[pa.Table]) -> list[DataFile]:
        """I/O: writes *parts* into data files of some hundred megabytes. `load` makes them a part of the table.

        Args:
            parts: One row group each. Columns that they lack are null.
        """
        rows = (conformed(part, self.schema) for part in parts)
        files = []
        while (first := next(rows, None)) is not None:
            files.append(
                write_data_file(
                    self.folder,
                    self.schema,
                    chain([first], rows),
                    statistics_of=self._statistics,
                    dictionaries=[],
                    end_at=_LARGE_FILE,
                )
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

    def merge(self, rows: pa.Table, rule: MergeRule, files: Sequence[StoredFile]) -> Merged | None:
        """MERGE *rows* (``s``) into the table (``t``), and compact its small files if there are many.

        I/O: one commit, on disk on return, or none if no clause fits any row; one more for a compaction.

        Args:
            rows: Unique by the rule's keys. Columns that the table lacks are for the rule's conditions.
            files: Files that may hold a key of *rows*. Others are not read.

        Returns:
            None: another commit came first. Nothing was changed.

        Raises:
            ONLY_SPARK: Only Spark can merge them. Nothing was changed.
        """
        if not rows.num_rows:
            return NOTHING
        budget = Budget(MOST_BYTES)
        budget.spend(rows.nbytes)
        refuse_old_times(rows)
        self._refuse_old_times_in(files, budget)
        before = self.version
        if LogFolder(self.folder).checkpoint() > before:
            return None  # log clean-up may have removed the next commit: its number would then be free
        condition = f"{rule.condition(DATAFUSION)} AND ({self._within(files)})"
        merger = self._handle.merge(rows, condition, source_alias="s", target_alias="t", **_HOW)
        for clause in rule.clauses:
            _add(merger, clause)
        try:
            metrics = merger.execute()
        except CommitFailedError:
            return None
        self._sync(before)
        self._compact()
        self._write_checkpoint_if_due()
        return Merged.of(*(metrics[f"num_target_rows_{change}"] for change in ("inserted", "updated", "deleted")))

    def _refuse_old_times_in(self, files: Sequence[StoredFile], budget: Budget) -> None:
        """I/O: reads *files*. delta-rs cannot write `_CALENDAR` into their successors."""
        for file in files:
            for batch in read_batches(self.folder, file.path, self.schema, budget):
                refuse_old_times(batch)

    def _within(self, files: Sequence[StoredFile]) -> str:
        """Return the condition on target rows that lets delta-rs skip all files but *files*."""
        key, ranges = f"t.{DATAFUSION.name(self.key)}", set()
        for file in files:
            if file.smallest is None or file.largest is None:
                return "TRUE"
            ranges.add(f"{key} BETWEEN {DATAFUSION.text(file.smallest)} AND {DATAFUSION.text(file.largest)}")
        return " OR ".join(sorted(ranges)) or "FALSE"

    def _compact(self) -> None:
        """I/O: compacts small files if there are many. A failure is left to the next MERGE, and to `maintain`."""
        files, before = replace(self).files, self.version
        if sum(file.size < _SMALL_FILE for file in files) < _MANY_FILES:
            return
        try:
            self._refuse_old_times_in([file for file in files if file.size < _COMPACTED], Budget(MOST_BYTES))
            self._handle.optimize.compact(target_size=_COMPACTED, **_HOW)
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


def _add(merger: Any, clause: Clause) -> None:
    values, when = assignments(clause, DATAFUSION), clause.when or None
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
    if metadata.partition_columns or _is_checked(metadata.configuration) or _computes(handle.schema().to_json()):
        return "the table has partitions, constraints, or columns that a writer checks or computes"
    if not _FINDS_FIELDS_BY_NAME and any(map(pa.types.is_nested, types)):
        return f"pyarrow {pa.__version__} does not find fields of documents by their names"
    return "a column has no type" if any(map(pa.types.is_null, types)) else None


def _computes(schema: str) -> bool:
    """Return True if a writer must check or compute values of a column."""
    return _NOT_NULL in schema.replace(" ", "") or any(f'"{key}"' in schema for key in _COMPUTED)


def _is_checked(properties: Mapping[str, str]) -> bool:
    """Return True if a writer must check rows, or may not change them. Delta ignores upper and lower case."""
    folded = {name.casefold(): value for name, value in properties.items()}
    is_append_only = folded.get("delta.appendonly", "").casefold() == "true"
    return is_append_only or any(name.startswith("delta.constraints.") for name in folded)
