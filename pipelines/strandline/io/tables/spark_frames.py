"""Delta tables by `TableName`, in a folder, an object store or a catalog.

This module uses SQL and DataFrames only. Delta's `DeltaTable` needs a plugin in a Spark Connect server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T
from pyspark.sql.utils import is_remote

from strandline.errors import ConfigurationError
from strandline.io.delta_log.append_result import AlreadyAppended, Anchor, Appended, LostRace, find_commit
from strandline.io.delta_log.commits import Commit, LogFolder, Metadata
from strandline.io.delta_log.object_store import StoreOptions
from strandline.io.spark.conflicts import SEQUENCE_TAKEN
from strandline.io.spark.races import retrying
from strandline.io.tables.catalog import Catalog
from strandline.io.tables.ddl import columns_ddl, create_statement, properties_clause, view_definition, with_comments
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.merge import merge
from strandline.io.tables.row_commands import row_command
from strandline.io.tables.table_creation import create_beside_rivals
from strandline.io.tables.table_listing import names_under
from strandline.io.tables.versions import reading_version
from strandline.model.lake_format import require_ours, stamp
from strandline.model.merge_rule import Merged, MergeRule
from strandline.model.tables import Lake, TableName, literal, quoted

_NO_TABLE = ("DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_MISSING_DELTA_TABLE", "PATH_NOT_FOUND")
_REDACTED = "*********(redacted)"  # instead of the value, wherever Spark takes it for a secret
_FIRST_PAGE, _PAGE_GROWTH = 16, 8


@dataclass(frozen=True)
class SparkFrames:
    """Reads and writes the tables of one lake as DataFrames. Callers decide what; this class knows where and how."""

    spark: SparkSession
    lake: Lake
    store: StoreOptions | None = field(default=None, kw_only=True)
    """How this process opens the lake's object store. None: only Spark reads it."""

    @cached_property
    def catalog(self) -> Catalog:
        """Catalog of the lake. Only for a lake in a catalog."""
        return Catalog(self.spark, self.lake)

    @cached_property
    def _without_spark(self) -> DeltaRsTables | None:
        """The tables, read without Spark. None: only Spark reaches their files."""
        is_near = self.lake.by_path and (self.store is not None or not self.lake.in_object_store)
        return DeltaRsTables(self.lake, self.store or StoreOptions()) if is_near else None

    @property
    def required_properties(self) -> dict[str, str]:
        """Properties that every CREATE TABLE of this lake must have."""
        return {} if self.lake.by_path else self.catalog.required_properties

    def exists(self, table: TableName) -> bool:
        if not self.lake.by_path:
            return self.catalog.has(table)
        log = self._log(table)
        if log is not None and ((there := log.newest() >= 0) or not (log.folder.is_table() or is_remote())):
            return there
        return self._spark_finds(table)

    def _spark_finds(self, table: TableName) -> bool:
        """Return True if Spark finds the table at its path, whatever this process sees there."""
        try:
            _ = self.read(table).schema
        except AnalysisException as error:
            if error.getCondition() not in _NO_TABLE:
                raise
            return False
        return True

    def create(
        self,
        table: TableName,
        schema: T.StructType,
        *,
        properties: Mapping[str, str] | None = None,
        cluster_by: Sequence[str] = (),
        comment: str = "",
    ) -> None:
        """I/O: creates *table* if it is missing. Idempotent.

        Args:
            properties: Table properties. Concurrent creators must pass the same ones.

        Raises:
            ConfigurationError: Another program or another release made the table, or the folder has other files.
        """
        if self.exists(table):
            require_ours(table, self.properties(table))
            return
        if not self.lake.by_path:
            self.catalog.require_schemas(table.layer)
        all_properties = {**(properties or {}), **stamp(table), **self.required_properties}
        sql = create_statement(self.lake.sql(table), schema, all_properties, cluster_by, comment)
        is_there = partial(self._spark_finds, table) if self.lake.by_path else lambda: True
        folder = self.lake.path(table) if self.lake.by_path else None
        create_beside_rivals(self.spark, lambda: self.spark.sql(sql), is_there=is_there, name=str(table), folder=folder)

    def read(self, table: TableName, *, version: int | None = None) -> DataFrame:
        """Return the table at its newest version, or at *version*. Each call plans the read again.

        Raises:
            VersionGone: Delta no longer shows *version*.
        """
        reader = self.spark.read.format("delta").options(**({} if version is None else {"versionAsOf": version}))
        with reading_version(f"version {version} of {table}") if version is not None else nullcontext():
            rows = reader.load(self.lake.path(table)) if self.lake.by_path else reader.table(self.lake.sql(table))
            if version is not None:
                _ = rows.schema  # a remote session has not looked at the version yet
        return rows

    def merge(self, table: TableName, source: DataFrame, rule: MergeRule, *, among: str = "") -> Merged:
        """MERGE *source* (``s``) into *table* (``t``). I/O, arguments: as `merge.merge`."""
        with self._changing_rows(table):
            return merge(self.lake.sql(table), source, rule, among=among)

    def _changing_rows(self, table: TableName) -> AbstractContextManager[None]:
        return row_command(table, lambda: self.read(table).columns)

    def update(self, table: TableName, columns: Mapping[str, str], where: str) -> int:
        """I/O: one commit that sets *columns* (name to SQL) of the rows that match *where*. None if no row matches.

        Returns their number.
        """
        changes = ", ".join(f"{quoted(name)} = {value}" for name, value in columns.items())
        with self._changing_rows(table):
            ((updated,),) = self.spark.sql(f"UPDATE {self.lake.sql(table)} SET {changes} WHERE {where}").collect()
        return int(updated)

    def delete(self, table: TableName, where: str) -> int:
        """I/O: one commit that deletes the rows that match *where*. None if no row matches. Returns their number."""
        with self._changing_rows(table):
            ((deleted,),) = self.spark.sql(f"DELETE FROM {self.lake.sql(table)} WHERE {where}").collect()
        return int(deleted)

    def history(self, table: TableName, limit: int = 1) -> list[Commit]:
        """I/O: returns the newest commits, newest first, as far as the log goes back."""
        return list(islice(self.commits_after(table, -1), limit))

    def commits_after(self, table: TableName, version: int, *, through: int | None = None) -> Iterator[Commit]:
        """I/O: yields the commits after *version*, newest first, as far as the log goes back. Reads lazily.

        Args:
            through: Version of the first commit. None: the newest. Without a commit of it in the log there are none.
        """
        log = self._log(table)
        if log is not None and (newest := log.newest()) >= 0:
            yield from log.commits_after(version, through=newest if through is None else through)
            return
        limit, following = _FIRST_PAGE, through
        while True:
            page = self._described(table, limit)
            for commit in page:
                if commit.version <= version or (following is not None and commit.version < following):
                    return
                if following in (None, commit.version):
                    following = commit.version - 1
                    yield commit
            if len(page) < limit:
                return
            limit *= _PAGE_GROWTH

    def _described(self, table: TableName, limit: int) -> list[Commit]:
        rows = self.spark.sql(f"DESCRIBE HISTORY {self.lake.sql(table)} LIMIT {limit}").collect()
        return [Commit.of_row(row) for row in rows]

    def commits_between(self, table: TableName, after: int, through: int) -> list[Commit] | None:
        """I/O: returns the commits of versions (after, through], newest first. None: the log no longer holds all."""
        commits = list(self.commits_after(table, after, through=through))
        return commits if len(commits) == through - after else None

    def version(self, table: TableName) -> int:
        """I/O: returns the newest version of *table*."""
        log = self._log(table)
        newest = -1 if log is None else log.newest()
        return self._described(table, 1)[0].version if newest < 0 else newest

    def _log(self, table: TableName) -> LogFolder | None:
        """Return the log folder. None: this process does not see the table's files."""
        return None if self._without_spark is None else LogFolder(self._without_spark.folder(table))

    def detail(self, table: TableName) -> Row:
        """``DESCRIBE DETAIL``: id, properties, sizeInBytes, numFiles, …"""
        detail = self.spark.sql(f"DESCRIBE DETAIL {self.lake.sql(table)}").first()
        assert detail is not None  # a Delta table always has one row of detail
        return detail

    def properties(self, table: TableName) -> dict[str, str]:
        """I/O: table properties, with some of the catalog's."""
        # SHOW TBLPROPERTIES hides values that mention a password. DESCRIBE DETAIL takes ten times as long.
        if (metadata := self._metadata(table)) is not None:
            return dict(metadata.properties)
        shown = {
            row["key"]: row["value"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.lake.sql(table)}").collect()
        }
        return dict(self.detail(table)["properties"]) if _REDACTED in shown.values() else shown

    def look(self, table: TableName) -> tuple[int, dict[str, str]] | None:
        """I/O: newest version and `properties` of *table*, from one look at its log. None: there is no table."""
        if (metadata := self._metadata(table)) is not None:
            return metadata.version, dict(metadata.properties)
        return (self.version(table), self.properties(table)) if self.exists(table) else None

    def id(self, table: TableName) -> str:
        """I/O: returns the table's id (`Metadata.id`)."""
        metadata = self._metadata(table)
        return str(self.detail(table)["id"]) if metadata is None else metadata.id

    def _description(self, table: TableName) -> str:
        metadata = self._metadata(table)
        return (self.detail(table)["description"] or "") if metadata is None else metadata.description

    def _metadata(self, table: TableName) -> Metadata | None:
        """Return the metadata from the log. None: this process cannot read it there."""
        return None if (log := self._log(table)) is None else log.metadata()

    def add_columns(self, table: TableName, schema: T.StructType) -> None:
        """I/O: one commit that adds the missing columns of *schema*. None if all are there."""
        present = set(self.read(table).columns)
        missing = T.StructType([column for column in schema.fields if column.name not in present])
        if missing.fields:
            self.spark.sql(f"ALTER TABLE {self.lake.sql(table)} ADD COLUMNS ({columns_ddl(missing)})")

    def set_properties(self, table: TableName, properties: Mapping[str, str]) -> None:
        """I/O: one commit that sets *properties*. Values may contain any character."""
        self.spark.sql(f"ALTER TABLE {self.lake.sql(table)} SET {properties_clause(properties)}")

    def append(self, table: TableName, rows: DataFrame, *, options: Mapping[str, str] | None = None) -> None:
        """I/O: one commit that appends *rows*. Repeated if a concurrent commit, such as of properties, conflicts.

        Idempotent only with ``txnAppId`` and ``txnVersion`` among *options*.
        """
        # Unlike `save` and `saveAsTable`, `append` never creates a table if the old one was moved away.
        retrying()(rows.writeTo(self.lake.sql(table)).options(**(options or {})).append)

    def append_once(
        self,
        table: TableName,
        rows: DataFrame,
        *,
        app_id: str,
        sequence: int,
        proof: str,
        after: int,
        anchor: Anchor | None = None,
    ) -> Appended | AlreadyAppended | LostRace:
        """I/O: appends *rows* as application transaction (*app_id*, *sequence*), then proves that the commit is ours.

        Delta silently skips a transaction whose sequence is taken. So the commits since then are searched for *proof*.

        Args:
            proof: Unique text. It is stored as the commit's ``userMetadata``.
            after: Version of the table before the first attempt.
            anchor: An earlier commit, which the same look meets; see `Appended.anchored`.
        """
        options = {"txnAppId": app_id, "txnVersion": str(sequence), "userMetadata": proof}
        try:
            self.append(table, rows, options=options)
        except SEQUENCE_TAKEN:
            return LostRace()
        since = after if anchor is None else min(after, anchor.version - 1)
        return find_commit(proof, self.commits_after(table, since), after=after, anchor=anchor)

    def replace(
        self, table: TableName, rows: DataFrame, *, comment: str = "", properties: Mapping[str, str] | None = None
    ) -> int:
        """I/O: one commit that replaces rows and schema. A reader sees the old table or the new one.

        A missing table is created by the same commit, with its comment and *properties*. Of an existing table, a
        changed comment is one more commit before the rows, and *properties* are one more after them.

        Returns:
            Number of rows.
        """
        if not self.exists(table):
            self._create_with(table, rows, {**(properties or {}), **({"comment": comment} if comment else {})})
            return self._rows_written(table)
        if comment and self._description(table) != comment:
            self.spark.sql(f"COMMENT ON TABLE {self.lake.sql(table)} IS {literal(comment)}")
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        if self.lake.by_path:
            writer.save(self.lake.path(table))
        else:
            writer.saveAsTable(self.lake.sql(table))
        count = self._rows_written(table)
        if properties:
            self.set_properties(table, properties)
        return count

    def _create_with(self, table: TableName, rows: DataFrame, properties: Mapping[str, str]) -> None:
        """I/O: one commit that creates *table* with *rows*. Files of a failed creation may be there."""
        if not self.lake.by_path:
            self.catalog.require_schemas(table.layer)
        writer = rows.writeTo(self.lake.sql(table)).using("delta")
        for name, value in {**properties, **stamp(table), **self.required_properties}.items():
            writer = writer.tableProperty(name, value)
        writer.createOrReplace()

    def _rows_written(self, table: TableName) -> int:
        return int(self.history(table)[0].metrics["numOutputRows"])

    def replace_view(self, table: TableName, query: str, columns: Mapping[str, str], *, comment: str = "") -> None:
        """I/O: creates or replaces a view in a catalog. *query* names tables as `Lake.sql` does.

        In a catalog without views, a table holds the present rows of *query*.

        Args:
            columns: Comment of every column of *query*. A comment may be empty.

        Raises:
            ConfigurationError: The lake is a folder.
        """
        if self.lake.by_path:
            raise ConfigurationError(f"{table} cannot be a view in a folder", next_step="set lake.catalog")
        self.catalog.require_schemas(table.layer)
        if not self.catalog.write_view(table, view_definition(query, columns, comment)):
            self.replace(table, with_comments(self.spark.sql(query), columns), comment=comment)

    def names(self, layer: str) -> list[TableName]:
        """I/O: every table of *layer*, sorted by name."""
        if not self.lake.by_path:
            names = self.catalog.tables(layer)
        elif self._without_spark is not None:
            return self._without_spark.names(layer)
        else:
            names = names_under(self.spark, self.lake.folder(layer))
        return sorted(TableName(layer, name) for name in names)  # type: ignore[arg-type]  # why: a layer is a Literal
