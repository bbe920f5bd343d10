"""Build one gold node: a view, a whole table, or only the changed keys of an incremental table."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from strandline.errors import ConfigurationError, one_line
from strandline.gold.build_decision import Decision, build_properties
from strandline.gold.graph import Graph, Node
from strandline.gold.key_lineage import KeyLineage
from strandline.gold.kind_change import make_room_for_table, make_room_for_view
from strandline.gold.pinned_inputs import PinnedInputs, without_quarantined
from strandline.gold.small_merge import HAS_ROW, MOST_KEYS, SmallTable, gold_rule
from strandline.gold.spark_names import Source, spark_sql
from strandline.gold.statement import suggestion
from strandline.io.tables.ddl import with_comments
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.increments import FeedLost, feed, read_few, require_readable
from strandline.io.tables.spark_tables import Tables
from strandline.model.engines import DELTA_RS, SPARK
from strandline.model.shape import is_delta_name
from strandline.model.tables import TableName, quoted
from strandline.plain_text import OWN_MESSAGE

_ROWS_PER_KEY = "_strandline_rows_per_key"


class Built(NamedTuple):
    """Result of one build."""

    rows: int | None
    """Number of rows written. None for a view."""
    how: str
    """How and why it was built."""
    engine: str | None = None
    """Engine that wrote the rows: ``Spark`` or ``delta-rs``. None for a view."""


class _IncrementalNotPossible(Exception):
    """A table must be rebuilt as a whole. Nothing was written."""


def build_view(pinned: PinnedInputs[Tables], graph: Graph, node: Node) -> None:
    """Create or replace the view of *node*.

    I/O: analyses the query, so a broken view fails here and not at its first reader; drops the table that the node was
    before; in a catalog, writes the view. A folder lake stores no views: readers expand the SQL file.
    """
    tables = pinned.tables
    frame = tables.spark.sql(spark_sql(pinned.tables.lake, graph, node.statement, pinned.sql))
    _refuse_unknown_columns(node, frame)
    make_room_for_view(tables, node.table)
    if not tables.lake.by_path:
        columns = {name: node.header.columns.get(name.lower(), "") for name in frame.columns}
        sql = spark_sql(
            tables.lake, graph, node.statement, without_quarantined(tables.lake, pinned.quarantines), inline=False
        )
        tables.replace_view(node.table, sql, columns, comment=node.header.description)


def build_rows(
    pinned: PinnedInputs[Tables], graph: Graph, node: Node, decision: Decision, native: DeltaRsTables | None
) -> Built:
    """Build the table of *node*, and store the versions of its inputs in its table properties.

    I/O: writes one commit with rows, then one with properties; a first build is one commit with both. Idempotent:
    after a crash between the two commits, the next run builds the rows again.

    Args:
        native: Tables of a lake that this process reaches without Spark. None: Spark merges all changed keys.

    Returns:
        Number of rows written, from the commit metrics; the mode (``full`` or ``incremental``) with its reason; the
        engine.
    """
    reason, properties = decision.reason, build_properties(graph, node, decision)
    if decision.action == "incremental":
        try:
            rows, engine = _Increment(pinned, graph, node, decision, native).merge(properties)
            return Built(rows, f"incremental: {reason}", engine)
        except _IncrementalNotPossible as why:
            reason = f"{reason}; but {why}"
    frame = _with_comments(
        node, pinned.tables.spark.sql(spark_sql(pinned.tables.lake, graph, node.statement, pinned.sql))
    )
    make_room_for_table(pinned.tables, node.table)
    rows = pinned.tables.replace(
        node.table, _with_unique_keys(node, frame), comment=node.header.description, properties=properties
    )
    return Built(rows, f"full: {reason}", SPARK)


@dataclass(frozen=True)
class _Increment:
    """A build of the changed keys of an incremental table. Fields are as the parameters of `build_rows`."""

    pinned: PinnedInputs[Tables]
    graph: Graph
    node: Node
    decision: Decision
    native: DeltaRsTables | None

    def merge(self, properties: Mapping[str, str]) -> tuple[int, str]:
        """MERGE the rows of all changed keys, delete keys that no longer have a row, and set *properties*.

        Returns:
            Number of rows changed, and the engine that merged them.

        Raises:
            _IncrementalNotPossible: Nothing was written.
        """
        what = f"the changed keys of {self._lineage.table}"
        try:
            changed = self._changed_keys()
            few = read_few(changed, MOST_KEYS, what)
            if few is None:
                require_readable(changed, what)
        except (PySparkException, FeedLost) as error:
            raise _IncrementalNotPossible(f"its changes cannot be read ({one_line(error)})") from error
        if few is not None:
            changed = self.pinned.tables.spark.createDataFrame(few, changed.schema)
        count = None if few is None else self._merge_natively(few, changed, properties)
        if count is not None:
            return count, DELTA_RS
        count = self._merged_by_spark(changed)
        self.pinned.tables.set_properties(self.node.table, properties)
        return count, SPARK

    def _merge_natively(self, few: pa.Table, keys: DataFrame, properties: Mapping[str, str]) -> int | None:
        """Return the number of rows changed. None: Spark must merge them."""
        native, table = self.native, self.node.table
        small = None if native is None else SmallTable.open(native, table, self.node.header.keys)
        if native is None or small is None:
            return None
        with self._view_of(keys) as view:
            count = small.merge(few, self._rows(view, small.columns).toArrow())
        if count is not None:
            with table_errors(table):
                native.set_properties(table, properties)
        return count

    def _merged_by_spark(self, keys: DataFrame) -> int:
        node, tables = self.node, self.pinned.tables
        with self._view_of(keys) as view:
            rows = self._rows(view, tables.read(node.table).schema)
            own = {name.lower(): name for name in rows.columns}
            names = [own[key] for key in node.header.keys]
            same = [
                F.col(f"k.{_key_alias(number)}").eqNullSafe(F.col(f"r.{quoted(name)}"))
                for number, name in enumerate(names)
            ]
            joined = keys.alias("k").join(
                rows.withColumn(HAS_ROW, F.lit(True)).alias("r"), reduce(Column.__and__, same), "left"
            )
            keyed = {name: F.col(f"k.{_key_alias(number)}") for number, name in enumerate(names)}
            columns = [keyed.get(name, F.col(f"r.{quoted(name)}")).alias(name) for name in rows.columns]
            return tables.merge(node.table, joined.select(*columns, HAS_ROW), gold_rule(names, rows.columns)).rows

    def _rows(self, keys: str, schema: StructType) -> DataFrame:
        """Return the rows of the keys in the view *keys*.

        Raises:
            _IncrementalNotPossible: Their columns are not those that are *schema*.
        """
        lake = self.pinned.tables.lake
        sql = spark_sql(lake, self.graph, self.node.statement, self._restricted_to_keys(keys))
        rows = self.pinned.tables.spark.sql(sql)
        if _column_types(rows.schema) != _column_types(schema):
            raise _IncrementalNotPossible("the columns of the result changed")
        return _with_unique_keys(self.node, rows)

    @contextmanager
    def _view_of(self, keys: DataFrame) -> Iterator[str]:
        name = f"strandline_keys_{uuid.uuid4().hex}"
        keys.createTempView(name)
        try:
            yield name
        finally:
            self.pinned.tables.spark.catalog.dropTempView(name)

    def _changed_keys(self) -> DataFrame:
        """Return the keys of changed driving rows, each once: values before and after the change.

        Includes rows that entered or left the quarantine of the driving table. Reads no data file yet.

        Raises:
            FeedLost: The feed is disabled, expired, or spans a schema change that it cannot read.
        """
        pinned, inputs, lineage = self.pinned, self.decision.inputs, self._lineage
        key_columns = [f"{key} AS {_key_alias(number)}" for number, key in enumerate(lineage.keys)]
        frames = []
        for table, after in self.decision.built_from.items():
            rows = feed(pinned.tables, table, after + 1, inputs[table].version)
            if table != lineage.table:
                now = pinned.tables.read(lineage.table, version=inputs[lineage.table].version)
                moved = rows.select("_key").distinct().alias("q")
                rows = now.alias("t").join(moved, F.col("t._key").eqNullSafe(F.col("q._key")), "left_semi")
            frames.append(rows.selectExpr(*key_columns))
        return reduce(DataFrame.unionByName, frames).distinct()

    @property
    def _lineage(self) -> KeyLineage:
        lineage = self.node.key_lineage
        assert lineage is not None  # decide() returns "incremental" only for nodes with key lineage
        return lineage

    def _restricted_to_keys(self, keys: str) -> Source:
        """Return table sources in which the driving table has only the rows whose key is in the view *keys*."""
        lineage = self._lineage
        on = " AND ".join(f"{key} <=> k.{_key_alias(number)}" for number, key in enumerate(lineage.keys))

        def source(table: TableName) -> str:
            if table != lineage.table:
                return self.pinned.sql(table)
            return f"(SELECT * FROM {self.pinned.sql(table)} LEFT SEMI JOIN {keys} AS k ON {on})"

        return source


def _with_unique_keys(node: Node, rows: DataFrame) -> DataFrame:
    """Return *rows* with a check: writing them fails if two rows have the same keys."""
    keys = node.header.keys
    if not keys:
        return rows
    same_key = Window.partitionBy(*(quoted(key) for key in keys)).rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    message = F.lit(f"{OWN_MESSAGE}keys: {', '.join(keys)} do not identify a row of {node.table}")
    first = next(name for name in rows.columns if name.lower() == keys[0])
    checked = F.when(F.col(_ROWS_PER_KEY) == 1, F.col(quoted(first))).otherwise(
        F.raise_error(message).cast(rows.schema[first].dataType)
    )
    metadata = rows.schema[first].metadata
    counted = rows.withColumn(_ROWS_PER_KEY, F.count("*").over(same_key))
    return counted.withColumn(first, checked).withMetadata(first, metadata).drop(_ROWS_PER_KEY)


def _with_comments(node: Node, rows: DataFrame) -> DataFrame:
    """Return *rows* with the column comments of the header as metadata."""
    _refuse_unknown_columns(node, rows)
    _refuse_delta_names(node, rows)
    return with_comments(rows, {name: node.header.columns.get(name.lower(), "") for name in rows.columns})


def _refuse_unknown_columns(node: Node, rows: DataFrame) -> None:
    columns = {name.lower() for name in rows.columns}
    unknown = [
        f"{node.file}: there is no column {name}{suggestion(name, columns)}"
        for name in node.header.columns
        if name not in columns
    ]
    if unknown:
        raise ConfigurationError("; ".join(unknown), next_step="correct the header")


def _refuse_delta_names(node: Node, rows: DataFrame) -> None:
    """Refuse names that Delta uses itself when it merges: the table would be built once, and never again."""
    name = next(filter(is_delta_name, rows.columns), None)
    if name is not None and node.header.materialized == "incremental":
        raise ConfigurationError(
            f"{node.file}: Delta's MERGE uses the column name {name} itself", next_step=f"{name} AS another name"
        )


def _column_types(schema: StructType) -> Mapping[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _key_alias(number: int) -> str:
    return f"_strandline_key_{number}"
