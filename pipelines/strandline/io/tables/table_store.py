"""Port to the tables of a lake, for capture and for the commands of operators. No Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from strandline.errors import RetriableError
from strandline.io.delta_log.commits import Commit
from strandline.model.lake_format import is_ours
from strandline.model.query import Condition, Query
from strandline.model.tables import Lake, Layer, TableName

if TYPE_CHECKING:
    import pyarrow as pa

CHANGE_FEED: Final = "delta.enableChangeDataFeed"


class VersionGone(RetriableError):
    """A version can no longer be read: it is older than the table's log or ``delta.deletedFileRetentionDuration``.

    Nothing was written. Read the newest version instead.
    """


class TableStore(Protocol):
    """Small reads and writes of a lake's tables.

    `Tables` implements it with Spark, `DeltaRsTables` with delta-rs. Each sees the other's commits at once.
    """

    @property
    def lake(self) -> Lake: ...

    def exists(self, table: TableName) -> bool:
        """I/O: returns True if there is a table."""

    def names(self, layer: str) -> list[TableName]:
        """I/O: every table of *layer*, sorted by name. See `own_tables`."""

    def version(self, table: TableName) -> int:
        """I/O: newest version of *table*."""

    def look(self, table: TableName) -> tuple[int, dict[str, str]] | None:
        """I/O: newest version and `properties` of *table*, from one look at its log. None: there is no table."""

    def properties(self, table: TableName) -> dict[str, str]:
        """I/O: table properties under their present names."""

    def id(self, table: TableName) -> str:
        """I/O: id of *table*. A table that is created again under the same name has another id."""

    def columns(self, table: TableName) -> list[str]:
        """I/O: names of the table's columns."""

    def column_types(self, table: TableName) -> dict[str, str]:
        """I/O: type of each column, by name, as Spark writes it: ``array<struct<sku:string>>``."""

    def column_comments(self, table: TableName) -> dict[str, str]:
        """I/O: comment of each column that has one, by name."""

    def commits_after(self, table: TableName, version: int, *, through: int | None = None) -> Iterator[Commit]:
        """I/O: yields the commits after *version*, newest first, as far as the log goes back. Reads lazily.

        Args:
            through: Version of the first commit. None: the newest. Without a commit of it in the log there are none.
        """

    def commits_between(self, table: TableName, after: int, through: int) -> list[Commit] | None:
        """I/O: commits of the versions (after, through], newest first. None: the log no longer holds all."""

    def create_table(
        self,
        table: TableName,
        ddl: str,
        *,
        properties: Mapping[str, str] | None = None,
        clustered_by: Sequence[str] = (),
        comment: str = "",
    ) -> None:
        """I/O: creates *table* if it is missing. Idempotent.

        Args:
            ddl: Columns of the table.
            properties: Table properties. Concurrent creators must pass the same ones.
            clustered_by: Columns for liquid clustering. Delta-rs ignores them.

        Raises:
            ConfigurationError: Another program or another release made the table, or the folder has other files.
        """

    def add_missing_columns(self, table: TableName, ddl: str) -> None:
        """I/O: one commit that adds the missing columns of *ddl*. None if all are there."""

    def set_properties(self, table: TableName, properties: Mapping[str, str]) -> None:
        """I/O: one commit that sets *properties*. Values may contain any character."""

    def append_rows(self, table: TableName, rows: pa.Table) -> None:
        """I/O: one commit that appends a few *rows*. They have all columns. A repeated call appends them again."""

    def query(self, query: Query) -> list[dict[str, Any]]:
        """I/O: result of *query*, one dictionary per row. Times are UTC.

        Raises:
            VersionGone: The query names a version that can no longer be read.
        """

    def insert_rows(
        self, table: TableName, ddl: str, rows: Sequence[Mapping[str, Any]], *key: str, comment: str = ""
    ) -> int:
        """I/O: one commit with the *rows* whose *key* is not in the table. Returns their number. Idempotent.

        Creates the table if it is missing.

        Args:
            ddl: Columns of the table.
            rows: Unique by *key*. They have all columns.
            key: One or more columns, not null.
        """

    def put_rows(self, table: TableName, ddl: str, rows: Sequence[Mapping[str, Any]], *key: str) -> None:
        """I/O: one commit with *rows*. A row with the *key* of a row in the table replaces it. Idempotent.

        Arguments: as for `insert_rows`. Not empty.
        """

    def update_rows(self, table: TableName, values: Mapping[str, Any], *conditions: Condition) -> None:
        """I/O: one commit that sets *values* in the rows for which all *conditions* hold. Without such a row: none."""

    def delete_rows(self, table: TableName, *conditions: Condition) -> int:
        """I/O: one commit that deletes the rows for which all *conditions* hold. Returns their number."""


def own_tables(tables: TableStore, *layers: Layer) -> list[TableName]:
    """Return the tables of *layers* that Strandline has made. Clones and tables of other programs are left out.

    I/O: lists the tables, and reads the properties of each.
    """
    named = (table for layer in layers for table in tables.names(layer))
    return [table for table in named if is_ours(table, tables.properties(table))]
