"""The port `TableStore` through Spark: DataFrames for many rows, plain values for few."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from strandline.io.spark.races import retrying
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.spark_frames import SparkFrames
from strandline.io.tables.table_store import VersionGone
from strandline.io.tables.versions import reading_version
from strandline.model.merge_rule import MergeRule
from strandline.model.query import SPARK, Condition, Query
from strandline.model.tables import TableName
from strandline.model.timestamps import utc

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Tables(SparkFrames):
    """Reads and writes the tables of one lake, as DataFrames and as rows of this process."""

    control: DeltaRsTables | None = field(default=None, kw_only=True)
    """How rows of this process are written into tables of control without Spark. None: Spark writes them."""

    def _direct(self, table: TableName) -> DeltaRsTables | None:
        """I/O: returns how rows of this process reach a *table* of control without Spark. None: by Spark."""
        if self.control is None or table.layer != "control" or table.shadow_of:
            return None
        return self.control if self.control.can_write(table) else None

    def columns(self, table: TableName) -> list[str]:
        return self.read(table).columns

    def column_types(self, table: TableName) -> dict[str, str]:
        return dict(self.read(table).dtypes)

    def column_comments(self, table: TableName) -> dict[str, str]:
        fields = self.read(table).schema.fields
        return {field.name: field.metadata["comment"] for field in fields if field.metadata.get("comment")}

    def create_table(
        self,
        table: TableName,
        ddl: str,
        *,
        properties: Mapping[str, str] | None = None,
        clustered_by: Sequence[str] = (),
        comment: str = "",
    ) -> None:
        if (direct := self._direct(table)) is not None:
            return direct.create_table(table, ddl, properties=properties, comment=comment)
        return self.create(table, schema_of(ddl), properties=properties, cluster_by=clustered_by, comment=comment)

    def add_missing_columns(self, table: TableName, ddl: str) -> None:
        if (direct := self._direct(table)) is not None:
            return direct.add_missing_columns(table, ddl)
        return self.add_columns(table, schema_of(ddl))

    def set_properties(self, table: TableName, properties: Mapping[str, str]) -> None:
        if (direct := self._direct(table)) is not None:
            return direct.set_properties(table, properties)
        return super().set_properties(table, properties)

    def append_rows(self, table: TableName, rows: pa.Table) -> None:
        if (direct := self._direct(table)) is not None:
            return direct.append_rows(table, rows)
        once = {"userMetadata": str(uuid.uuid4())}  # so that no other commit is taken for this one (`mark_of_rows`)
        return self.append(table, self.spark.createDataFrame(rows).coalesce(1), options=once)

    def query(self, query: Query) -> list[dict[str, Any]]:
        near = self._without_spark  # some milliseconds; a Spark job plans, compiles and reads the log first
        if near is not None and near.exists(query.table) and near.can_query(query.table):
            return near.query(query)
        return self.query_by_spark(query)

    def query_by_spark(self, query: Query) -> list[dict[str, Any]]:
        """I/O, returns: as `query`, by Spark, which reaches any lake and every feature of a table."""
        table, version = self.lake.sql(query.table), query.version
        source = table if version is None else f"{table} VERSION AS OF {version:d}"
        sql = query.sql(SPARK, source)
        if version is None:
            result = self.spark.sql(sql).collect()
        else:
            with reading_version(what := f"version {version} of {query.table}"):
                rows = self.spark.sql(sql)
                _ = rows.schema  # a remote session has not looked at the version yet
            try:
                result = rows.collect()
            except PySparkException as error:  # a file of the version was deleted
                raise VersionGone(f"{what} cannot be read", next_step="choose a newer version") from error
        return [{name: _plain(value) for name, value in row.asDict(recursive=True).items()} for row in result]

    def insert_rows(
        self, table: TableName, ddl: str, rows: Sequence[Mapping[str, Any]], *key: str, comment: str = ""
    ) -> int:
        if (direct := self._direct(table)) is not None:
            return direct.insert_rows(table, ddl, rows, *key, comment=comment)
        schema = schema_of(ddl)
        self.create(table, schema, comment=comment)
        if not rows:
            return 0
        return self.insert_missing(table, self._frame(schema, rows), *key)

    def _frame(self, schema: StructType, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
        return self.spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)

    def put_rows(self, table: TableName, ddl: str, rows: Sequence[Mapping[str, Any]], *key: str) -> None:
        if (direct := self._direct(table)) is not None:
            return direct.put_rows(table, ddl, rows, *key)
        schema = schema_of(ddl)
        self.create(table, schema)
        rule = MergeRule(key).update(schema.names).insert(schema.names)
        retrying()(self.merge, table, self._frame(schema, rows), rule)
        return None

    def insert_missing(self, table: TableName, rows: DataFrame, *key: str) -> int:
        """I/O: one commit with the *rows* whose *key* is not in the table. Returns their number. Idempotent.

        Args:
            rows: Unique by *key*.
            key: One or more columns, not null.
        """
        return retrying()(self.merge, table, rows, MergeRule(key).insert(rows.columns)).inserted

    def update_rows(self, table: TableName, values: Mapping[str, Any], *conditions: Condition) -> None:
        if (direct := self._direct(table)) is not None:
            return direct.update_rows(table, values, *conditions)
        changes = {name: SPARK.value(value) for name, value in values.items()}
        self.update(table, changes, SPARK.where((condition,) for condition in conditions))
        return None

    def delete_rows(self, table: TableName, *conditions: Condition) -> int:
        if (direct := self._direct(table)) is not None:
            return direct.delete_rows(table, *conditions)
        return self.delete(table, SPARK.where((condition,) for condition in conditions))


def _plain(value: Any) -> Any:
    """Return a time in UTC, and bytes. Spark returns times without a zone, and mutable bytes."""
    if isinstance(value, datetime):
        return utc(value)
    return bytes(value) if isinstance(value, bytearray) else value
