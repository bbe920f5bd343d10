"""Tables of a lake in a folder of this machine or in an object store, through delta-rs: no JVM."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from strandline.errors import LakeUnavailable, RetriableError, StrandlineError, one_line
from strandline.io.delta_log.commits import Commit, LogFolder, Metadata, names_in_folder
from strandline.io.delta_log.delta_rs_query import arrow_schema, arrow_table, from_statistics, result
from strandline.io.delta_log.delta_types import comments_of, types_of
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.object_store import StoreOptions
from strandline.io.delta_log.plain_protocol import CLUSTERING_FEATURES, PLAIN_FEATURES, features_of, make_plain
from strandline.io.delta_log.store_folder import StoreFolder, tables_in_store
from strandline.io.delta_log.table_folder import TableFolder
from strandline.io.delta_log.table_upkeep import NO_HOOKS
from strandline.io.tables.table_store import VersionGone
from strandline.model.lake_format import require_ours, stamp
from strandline.model.merge_rule import MergeRule
from strandline.model.query import DATAFUSION, Condition, Query
from strandline.model.tables import Lake, TableName

R = TypeVar("R")

_ATTEMPTS: Final = 20
_NO_COMMIT_RETRY: Final = CommitProperties(max_commit_retries=0)
"""A commit fails if another one came after the version that was read."""
_CHECKPOINTS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
_LAST: Final = "\U0010ffff"
"""Last character of Unicode."""
_READABLE_FEATURES: Final = PLAIN_FEATURES | CLUSTERING_FEATURES
_QUERYABLE_FEATURES: Final = _READABLE_FEATURES | {"columnMapping", "timestampNtz"}
"""Features of tables that DataFusion queries. It cannot write all of them."""


@dataclass(frozen=True)
class DataFiles:
    """Data files of one version of a table, and its columns."""

    schema: pa.Schema
    paths: Sequence[str]
    """Paths as the log has them: below the table, URL-encoded."""


@dataclass(frozen=True)
class DeltaRsTables:
    """`TableStore` on a folder of this machine, or on an object store. Every call reads the table's log: in a folder
    some milliseconds at most.

    Args:
        options: How an object store is opened.
    """

    lake: Lake
    options: StoreOptions = StoreOptions()

    def folder(self, table: TableName) -> TableFolder:
        """Return the files of *table*."""
        path = self.lake.path(table)
        return StoreFolder(path, self.options) if self.lake.in_object_store else LocalFolder(Path(path))

    def exists(self, table: TableName) -> bool:
        try:
            return self.folder(table).is_table()
        except OSError as error:
            raise _table_error(table, error) from error

    def names(self, layer: str) -> list[TableName]:
        folder = self.lake.folder(layer)
        in_store = self.lake.in_object_store
        folders = tables_in_store(folder, self.options) if in_store else names_in_folder(Path(folder))
        return sorted(TableName(layer, name) for name in folders)  # type: ignore[arg-type]  # why: a layer is a Literal

    def can_use(self, bronze: TableName, control: Sequence[TableName]) -> bool:
        """I/O: returns True if delta-rs can read *bronze*, and read and write *control*, if these tables exist.

        Raises:
            RetriableError: An object store does not answer.
        """
        return all(
            self._has_only(table, _READABLE_FEATURES if table == bronze else PLAIN_FEATURES)
            for table in (bronze, *control)
        )

    def _has_only(self, table: TableName, features: frozenset[str]) -> bool:
        """I/O: returns True if *table* needs no feature beyond *features*, or does not exist.

        Raises:
            RetriableError: An object store does not answer.
        """
        try:
            return not self.exists(table) or features_of(self._open(table)) <= features
        except RetriableError as error:
            if self.lake.in_object_store and isinstance(error.__cause__, OSError):
                raise
            return False  # delta-rs cannot even open it: Spark says what is wrong, if anything is

    def columns(self, table: TableName) -> list[str]:
        return [field.name for field in self._open(table).schema().fields]

    def column_types(self, table: TableName) -> dict[str, str]:
        return types_of(self._open(table))

    def column_comments(self, table: TableName) -> dict[str, str]:
        return comments_of(self._open(table))

    def can_query(self, table: TableName) -> bool:
        """I/O: returns True if delta-rs can query *table*, which exists."""
        return self._has_only(table, _QUERYABLE_FEATURES)

    def can_write(self, table: TableName) -> bool:
        """I/O: returns True if delta-rs can write *table*, which exists."""
        return self._has_only(table, PLAIN_FEATURES)

    def data_files(self, table: TableName, prefix: str = "") -> DataFiles | None:
        """I/O: returns the data files of the newest version. None: only Spark reads rows from them.

        Args:
            prefix: Files without a ``_key`` that begins so, by their statistics, are left out. Empty: all files.
        """
        delta_table = self._open(table)
        if features_of(delta_table) - _READABLE_FEATURES or delta_table.metadata().partition_columns:
            return None
        actions = arrow_table(delta_table.get_add_actions(flatten=bool(prefix)))
        if prefix and "min._key" in actions.schema.names:
            starts_before = pc.less_equal(actions["min._key"], prefix + _LAST).fill_null(True)
            ends_after = pc.greater_equal(actions["max._key"], prefix).fill_null(True)
            actions = actions.filter(pc.and_(starts_before, ends_after))
        return DataFiles(arrow_schema(delta_table), actions["path"].to_pylist())

    def version(self, table: TableName) -> int:
        with table_errors(table):
            newest = LogFolder(self.folder(table)).newest()
        return newest if newest >= 0 else int(self._open(table).version())

    def id(self, table: TableName) -> str:
        metadata = self._near_metadata(table)
        return str(self._open(table).metadata().id) if metadata is None else metadata.id

    def commits_after(self, table: TableName, version: int, *, through: int | None = None) -> Iterator[Commit]:
        return LogFolder(self.folder(table)).commits_after(version, through=through)

    def commits_between(self, table: TableName, after: int, through: int) -> list[Commit] | None:
        commits = list(self.commits_after(table, after, through=through))
        return commits if len(commits) == through - after else None

    def look(self, table: TableName) -> tuple[int, dict[str, str]] | None:
        metadata = self._metadata(table)
        return None if metadata is None else (metadata.version, dict(metadata.properties))

    def properties(self, table: TableName) -> dict[str, str]:
        if (near := self._near_metadata(table)) is not None:
            return dict(near.properties)
        try:
            return dict(self._open(table).metadata().configuration)
        except LakeUnavailable:  # delta-rs opens no table with a feature that it does not know
            if (metadata := self._metadata(table)) is None:
                raise
            return dict(metadata.properties)

    def _near_metadata(self, table: TableName) -> Metadata | None:
        """I/O: reads the newest metadata from the log, in a tenth of the time in which delta-rs opens the table.

        None: delta-rs opens it. In an object store, where each file of the log is a request, it reads many at once.
        """
        return None if self.lake.in_object_store else self._metadata(table)

    def _metadata(self, table: TableName) -> Metadata | None:
        """I/O: reads the newest metadata from the files of the log. None: they do not contain it."""
        with table_errors(table):
            return LogFolder(self.folder(table)).metadata()

    def query(self, query: Query) -> list[dict[str, Any]]:
        sql = query.sql(DATAFUSION, "t")
        try:
            delta_table = self._open(query.table, query.version)
            return from_statistics(delta_table, query) or result({"t": delta_table}, sql)
        except StrandlineError:
            raise
        except Exception as error:  # the library raises a bare Exception for a file that it cannot read
            if query.version is None:
                raise _table_error(query.table, error) from error
            raise VersionGone(
                f"version {query.version} of {query.table} cannot be read", next_step="choose a newer version"
            ) from error

    def insert_rows(
        self, table: TableName, ddl: str, rows: Sequence[Mapping[str, Any]], *key: str, comment: str = ""
    ) -> int:
        self.create_table(table, ddl, comment=comment)
        if not rows:
            return 0

        def insert() -> int:
            delta_table = self._open(table)
            require_ours(table, delta_table.metadata().configuration)
            schema = pa.schema(delta_table.schema().to_arrow())
            present = {tuple(row.values()) for row in self._keys(delta_table, key, rows)}
            missing = [row for row in rows if tuple(row[name] for name in key) not in present]
            if missing:
                new_rows = pa.Table.from_pylist(missing, schema)
                write_deltalake(delta_table, new_rows, mode="append", commit_properties=_NO_COMMIT_RETRY)
            return len(missing)

        return _retry_on_conflict(table, insert)

    def _keys(
        self, delta_table: DeltaTable, key: Sequence[str], rows: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the keys of *delta_table* that may be keys of *rows*."""
        among = [(name, "in", {row[name] for row in rows}) for name in key]
        query = Query(TableName("control", "t")).select(*key).where(*among)
        return result({"t": delta_table}, query.sql(DATAFUSION, "t"))

    def put_rows(self, table: TableName, ddl: str, rows: Sequence[Mapping[str, Any]], *key: str) -> None:
        self.create_table(table, ddl)
        condition = MergeRule(key).condition(DATAFUSION)

        def put() -> None:
            delta_table = self._open(table)
            new_rows = pa.Table.from_pylist(list(rows), pa.schema(delta_table.schema().to_arrow()))
            merger = delta_table.merge(
                new_rows, condition, source_alias="s", target_alias="t", commit_properties=_NO_COMMIT_RETRY
            )
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

        _retry_on_conflict(table, put)

    def update_rows(self, table: TableName, values: Mapping[str, Any], *conditions: Condition) -> None:
        sql = {DATAFUSION.name(name): DATAFUSION.value(value) for name, value in values.items()}
        where = DATAFUSION.where((condition,) for condition in conditions)

        def update() -> None:
            self._open(table).update(updates=sql, predicate=where, commit_properties=_NO_COMMIT_RETRY)

        _retry_on_conflict(table, update)

    def delete_rows(self, table: TableName, *conditions: Condition) -> int:
        where = DATAFUSION.where((condition,) for condition in conditions)

        def delete() -> int:
            return int(self._open(table).delete(where, commit_properties=_NO_COMMIT_RETRY)["num_deleted_rows"])

        return _retry_on_conflict(table, delete)

    def create_table(
        self,
        table: TableName,
        ddl: str,
        *,
        properties: Mapping[str, str] | None = None,
        clustered_by: Sequence[str] = (),  # noqa: ARG002  # why: the port's; delta-rs clusters no table
        comment: str = "",
    ) -> None:
        folder = self.folder(table)
        if self.exists(table):
            require_ours(table, self.properties(table))
            return
        from strandline.io.tables.delta_schema import delta_schema  # a parser of SQL: a third of a second to import

        try:
            DeltaTable.create(
                folder.uri,
                delta_schema(ddl),
                description=comment or None,
                configuration={**(properties or {}), **stamp(table)},
                storage_options=self.options.for_delta_rs() if self.lake.in_object_store else None,
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            if not self.exists(table):  # otherwise another process has created it
                raise _table_error(table, error) from error

    def add_missing_columns(self, table: TableName, ddl: str) -> None:
        from strandline.io.tables.delta_schema import delta_schema

        def add(delta_table: DeltaTable) -> None:
            present = {field.name for field in delta_table.schema().fields}
            missing = [field for field in delta_schema(ddl).fields if field.name not in present]
            if missing:
                delta_table.alter.add_columns(missing, post_commithook_properties=NO_HOOKS)

        self._alter(table, add)

    def set_properties(self, table: TableName, properties: Mapping[str, str]) -> None:
        def change(delta_table: DeltaTable) -> None:
            delta_table.alter.set_table_properties(
                dict(properties), raise_if_not_exists=False, post_commithook_properties=_CHECKPOINTS
            )

        self._alter(table, change)

    def _alter(self, table: TableName, change: Callable[[DeltaTable], None]) -> None:
        """I/O: changes the metadata of a plain table. Of another one delta-rs may raise the reader version."""
        _retry_on_conflict(table, lambda: change(make_plain(self.folder(table))))

    def append_rows(self, table: TableName, rows: pa.Table) -> None:
        before, proof = self.version(table), str(uuid.uuid4())
        properties = CommitProperties(custom_metadata={"userMetadata": proof}, max_commit_retries=0)

        def append() -> None:
            # A conflict may be this commit itself, whose answer was lost.
            if all(commit.user_metadata != proof for commit in self.commits_after(table, before)):
                delta_table = self._open(table)
                write_deltalake(
                    delta_table,
                    rows,
                    mode="append",
                    commit_properties=properties,
                    post_commithook_properties=_CHECKPOINTS,
                )

        _retry_on_conflict(table, append)

    def _open(self, table: TableName, version: int | None = None) -> DeltaTable:
        try:
            return self.folder(table).table(version)
        except (DeltaError, OSError) as error:
            if version is not None:
                raise
            raise _table_error(table, error) from error


def _retry_on_conflict(table: TableName, commit: Callable[[], R]) -> R:
    """Return the result of *commit*. Repeat it if another commit came first.

    Raises:
        LakeUnavailable: Other commits came first every time, or the table cannot be read or written.
    """
    attempts = Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random(0, 0.1),
        reraise=True,
    )
    with table_errors(table):
        return attempts(commit)


@contextmanager
def table_errors(table: TableName) -> Iterator[None]:
    """Raise every error of delta-rs, the disk or the store as one line that names *table*."""
    try:
        yield
    except StrandlineError:
        raise
    except Exception as error:  # the library raises a bare Exception for a file that it cannot read
        raise _table_error(table, error) from error


def _table_error(table: TableName, error: Exception) -> LakeUnavailable:
    return LakeUnavailable(
        f"{table} cannot be read or written ({one_line(error)})",
        next_step="check the lake's place (lake.root) and its permissions, then repeat the command",
    )
