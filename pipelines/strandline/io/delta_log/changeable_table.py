"""Change rows of a table without Spark: the files that hold them are written anew, in one commit.

For tables without reader features, and with the writer features in `_FEATURES`. File statistics and the change data
feed are kept.

Source: delta-io/delta, PROTOCOL.md: add, remove, cdc and metaData actions; change data files.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from strandline.errors import one_line
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.delta_rs_query import arrow_schema, arrow_table
from strandline.io.delta_log.file_statistics import STATISTICS, has_bounds
from strandline.io.delta_log.log_commit import addition, commit_info, put_commit, removal
from strandline.io.delta_log.parquet_file import Budget, DataFile, TooLarge, read_data_file, write_data_file
from strandline.io.delta_log.plain_protocol import CLUSTERING_FEATURES, PLAIN_FEATURES, features_of
from strandline.io.delta_log.table_folder import TableFolder
from strandline.io.delta_log.table_upkeep import checkpoint_interval, write_checkpoint

_log = logging.getLogger("strandline.tables")
ONLY_SPARK: Final = (DeltaError, pa.ArrowException, FileNotFoundError, TooLarge)
"""Errors of a table that only Spark reads or writes. `ChangeableTable` raises them before it has changed anything."""
CHANGE_TYPE: Final = "_change_type"
_FEATURES: Final = PLAIN_FEATURES | CLUSTERING_FEATURES
_METADATA: Final = ("id", "name", "description", "format", "schemaString", "partitionColumns", "createdTime")
MOST_BYTES: Final = 64 << 20
"""Bytes of rows, not compressed, that a change reads at most. The process then needs some six times as many. Above it,
Spark is quicker."""
_FINDS_FIELDS_BY_NAME: Final = int(pa.__version__.partition(".")[0]) >= 21
"""True: a cast finds the fields of a struct by their names. Before version 21, pyarrow refuses another order."""
_SMALL_FILE: Final = 1 << 20
_MANY_FILES: Final = 32
_COMPUTED: Final = ("delta.invariants", "delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT")
_NOT_NULL: Final = '"nullable":false'
"""Keys of a column's metadata, and a part of its definition, that tell a writer to check or to compute values."""


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
class TableChange:
    """New rows in the place of some files."""

    replaced: Sequence[StoredFile] = ()
    rows: pa.Table | None = None
    """All rows that the replaced files held, changed or not, and new rows. None: there are none."""
    feed: pa.Table | None = None
    """The changed rows for the change data feed, with `CHANGE_TYPE`. None: *rows* holds new rows only."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Table properties to set."""
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ChangeableTable:
    """One version of a table.

    Args:
        key: Column by whose file statistics files are found.
    """

    folder: TableFolder
    key: str
    version: int
    properties: Mapping[str, str]
    schema: pa.Schema
    _handle: DeltaTable
    _metadata: Mapping[str, Any]
    _budget: Budget = field(default_factory=lambda: Budget(MOST_BYTES), compare=False)

    @staticmethod
    def open(folder: TableFolder, key: str) -> ChangeableTable | None:
        """I/O: opens the newest version. None: there is no table, or only Spark can change it.

        Raises:
            ONLY_SPARK: Only Spark can change it.
        """
        if not folder.is_table():
            return None
        handle = folder.table()
        if not features_of(handle) <= _FEATURES:
            return None
        metadata = LogFolder(folder).newest_action("metaData", (*_METADATA, "configuration"), int(handle.version()))
        if metadata is None or metadata["partitionColumns"]:
            return None
        configuration = dict(metadata["configuration"])
        if _is_checked(configuration) or _computes(metadata["schemaString"]):
            return None
        schema = arrow_schema(handle)
        if not _FINDS_FIELDS_BY_NAME and any(map(pa.types.is_nested, schema.types)):
            return None
        if any(map(pa.types.is_null, schema.types)) or not _has_statistics(configuration, schema):
            return None
        metadata |= {"configuration": configuration, "format": _format(metadata["format"])}
        return ChangeableTable(folder, key, int(handle.version()), configuration, schema, handle, metadata)

    @property
    def schema_text(self) -> str:
        """Columns as the log has them: JSON that Spark reads."""
        return str(self._metadata["schemaString"])

    @cached_property
    def files(self) -> list[StoredFile]:
        """Data files of the version."""
        actions = arrow_table(self._handle.get_add_actions(flatten=True))
        bounds = [f"{statistic}.{self.key}" for statistic in ("min", "max")]
        is_text = any(pa.types.is_string(field.type) for field in self.schema if field.name == self.key)
        known = ("path", "size_bytes", *(bounds if is_text else ()))  # Python has no year 10000
        wanted = [name for name in known if name in actions.schema.names]
        return [
            StoredFile(row["path"], row["size_bytes"], *(row.get(bound) for bound in bounds))
            for row in actions.select(wanted).to_pylist()
        ]

    def small_files(self) -> list[StoredFile]:
        """Return the small files if there are many: the next change writes them anew. Each change leaves one."""
        small = [file for file in self.files if file.size < _SMALL_FILE]
        return small if len(small) >= _MANY_FILES else []

    def files_with(self, keys: Sequence[str]) -> list[StoredFile]:
        """Return the files that may hold one of the sorted *keys*, by their statistics."""

        def may_hold(file: StoredFile) -> bool:
            if file.smallest is None or file.largest is None:
                return True
            first = bisect_left(keys, file.smallest)
            return first < len(keys) and keys[first] <= file.largest

        return [file for file in self.files if may_hold(file)]

    def read(self, file: StoredFile, columns: Sequence[str] | None = None) -> pa.Table:
        """I/O: reads a file. Columns that it lacks are null.

        Args:
            columns: None: all columns of the table.

        Raises:
            TooLarge: All reads of this object together have more than `MOST_BYTES`.
        """
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return read_data_file(self.folder, file.path, schema, self._budget)

    def commit(self, change: TableChange) -> bool:
        """I/O: writes the files of *change*, and commits them as the next version. On disk on return.

        Returns:
            False if another commit came first. Nothing was changed. Open the table again.

        Effects on failure:
            The commit may exist if the failure was that of its last sync. A file that no commit names is removed by
            VACUUM.
        """
        new = [] if change.rows is None else [self._write(change.rows, self.schema)]
        feed = [] if change.feed is None else [self._write(change.feed, change.feed.schema, "_change_data/cdc-00000-")]
        self.folder.sync("", *(["_change_data"] if feed else []))  # the files' names
        actions = list(self._actions(change, new, feed))
        version = self.version + 1
        if not put_commit(self.folder, version, actions):
            for file in (*new, *feed):
                self.folder.remove(file.name)
            return False
        self._write_checkpoint_if_due(version)
        return True

    def _write(self, rows: pa.Table, schema: pa.Schema, prefix: str = "part-00000-") -> DataFile:
        is_feed = CHANGE_TYPE in schema.names
        statistics = [] if is_feed else _statistics_of(self.properties)
        batches = rows.combine_chunks().to_batches()
        return write_data_file(self.folder, schema, batches, statistics_of=statistics, dictionaries=None, prefix=prefix)

    def _actions(
        self, change: TableChange, new: Sequence[DataFile], feed: Sequence[DataFile]
    ) -> Iterator[dict[str, Any]]:
        changes_rows = bool(change.replaced) or change.rows is not None
        parameters = {"properties": json.dumps(dict(change.properties))} if change.properties else {}
        info = commit_info("MERGE" if changes_rows else "SET TBLPROPERTIES", parameters, change.metrics)
        now = info["commitInfo"]["timestamp"]
        yield info
        if change.properties:
            configuration = {**self._metadata["configuration"], **change.properties}
            yield {"metaData": _present({**self._metadata, "configuration": configuration})}
        for file in change.replaced:
            yield removal(file.path, file.size, now, changes_data=True)
        for written in new:
            yield addition(written, changes_data=True)
        for written in feed:
            yield {"cdc": {"path": written.name, "partitionValues": {}, "size": written.size, "dataChange": False}}

    def _write_checkpoint_if_due(self, version: int) -> None:
        if version % checkpoint_interval(dict(self.properties)) != 0:
            return
        try:
            write_checkpoint(self.folder)
        except Exception as error:  # noqa: BLE001  # why: the library raises a bare Exception for a file that it cannot read
            _log.warning(
                "%s: no checkpoint was written, the next one is tried later (%s)", self.folder.uri, one_line(error)
            )


def change_feed(changed: Mapping[str, Sequence[pa.Table]]) -> pa.Table:
    """Return the rows of the change data feed.

    Args:
        changed: Rows by the type of their change.
    """
    parts = [
        rows.append_column(CHANGE_TYPE, pa.array([kind] * rows.num_rows, pa.string()))
        for kind, some in changed.items()
        for rows in some
    ]
    return pa.concat_tables(parts)


def _computes(schema: str) -> bool:
    """Return True if a writer must check or compute values of a column."""
    return _NOT_NULL in schema.replace(" ", "") or any(f'"{key}"' in schema for key in _COMPUTED)


def _is_checked(properties: Mapping[str, str]) -> bool:
    """Return True if a writer must check rows, or may not change them. Delta ignores upper and lower case."""
    folded = {name.casefold(): value for name, value in properties.items()}
    is_append_only = folded.get("delta.appendonly", "").casefold() == "true"
    return is_append_only or any(name.startswith("delta.constraints.") for name in folded)


def _format(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the format of a table as JSON has it: a checkpoint has pairs instead of an object."""
    return {"provider": said["provider"], "options": dict(said.get("options") or {})}


def _present(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


def _statistics_of(properties: Mapping[str, str]) -> list[str]:
    """Return the columns with file statistics that the table names."""
    return [name for name in properties.get(STATISTICS, "").split(",") if name]


def _has_statistics(properties: Mapping[str, str], schema: pa.Schema) -> bool:
    """Return True if this process can make the statistics that the table names."""
    return all(name in schema.names and has_bounds(schema.field(name).type) for name in _statistics_of(properties))
