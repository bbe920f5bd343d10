"""Build one gold node: a view, a whole table, or only the changed keys of an incremental table."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.errors import ConfigurationError, one_line
from pipelines.gold.build_decision import Decision, build_properties
from pipelines.gold.graph import Graph, Node
from pipelines.gold.pinned_inputs import PinnedInputs, without_quarantined
from pipelines.gold.spark_names import Source, spark_sql
from pipelines.gold.statement import suggestion
from pipelines.io.ddl import with_comments
from pipelines.io.increments import FeedLost, feed, require_readable
from pipelines.io.tables import Tables
from pipelines.model.tables import TableName, quoted
from pipelines.plain_text import OWN_MESSAGE

_HAS_ROW = "_strandline_found"


class _IncrementalNotPossible(Exception):
    """A table must be rebuilt as a whole. Nothing was written."""


def build_view(pinned: PinnedInputs[Tables], graph: Graph, node: Node) -> None:
    """Create or replace the view of *node*.

    I/O: analyses the query, so a broken view fails here and not at its first reader; in a catalog, writes the view.
    A folder lake stores no views: readers expand the SQL file.
    """
    tables = pinned.tables
    frame = tables.spark.sql(spark_sql(pinned.tables.lake, graph, node.statement, pinned.sql))
    _refuse_unknown_columns(node, frame)
    if not tables.lake.by_path:
        columns = {name: node.header.columns.get(name.lower(), "") for name in frame.columns}
        sql = spark_sql(
            tables.lake, graph, node.statement, without_quarantined(tables.lake, pinned.quarantines), inline=False
        )
        tables.replace_view(node.table, sql, columns, comment=node.header.description)


def build_rows(pinned: PinnedInputs[Tables], graph: Graph, node: Node, decision: Decision) -> tuple[int, str]:
    """Build the table of *node*, then store the versions of its inputs in its table properties.

    I/O: writes one commit with rows, then one with properties. Idempotent: after a crash between the two commits,
    the next run builds the rows again.

    Returns:
        Number of rows written, from the commit metrics; and the mode (``full`` or ``incremental``) with its reason.
    """
    rows, reason = None, decision.reason
    if decision.action == "incremental":
        try:
            rows = _merge(pinned, graph, node, decision)
        except _IncrementalNotPossible as why:
            reason = f"{reason}; but {why}"
    mode = "full" if rows is None else "incremental"
    if rows is None:
        frame = _with_comments(
            node, pinned.tables.spark.sql(spark_sql(pinned.tables.lake, graph, node.statement, pinned.sql))
        )
        pinned.tables.replace(node.table, _with_unique_keys(node, frame), comment=node.header.description)
        rows = int(pinned.tables.history(node.table)[0].metrics["numOutputRows"])
    pinned.tables.set_properties(node.table, build_properties(graph, node, decision))
    return rows, f"{mode}: {reason}"


def _merge(pinned: PinnedInputs[Tables], graph: Graph, node: Node, decision: Decision) -> int:
    """MERGE the rows of all changed keys, and delete keys that no longer have a row.

    Returns:
        Number of rows changed by the commit.
    """
    tables, keys_view = pinned.tables, f"strandline_keys_{uuid.uuid4().hex}"
    try:
        keys = _changed_keys(pinned, node, decision)
        keys.createTempView(keys_view)
        frame = tables.spark.sql(
            spark_sql(tables.lake, graph, node.statement, _restricted_to_keys(pinned, node, keys_view))
        )
        if _column_types(frame) != _column_types(tables.read(node.table)):
            raise _IncrementalNotPossible("the columns of the result changed")
        rows = _with_unique_keys(node, frame).withColumn(_HAS_ROW, F.lit(True)).alias("r")
        matches = [
            F.col(f"k.{_key_alias(number)}").eqNullSafe(F.col(f"r.{quoted(key)}"))
            for number, key in enumerate(node.header.keys)
        ]
        source = keys.alias("k").join(rows, reduce(Column.__and__, matches), "left")
        on = " AND ".join(f"t.{quoted(key)} <=> s.{_key_alias(number)}" for number, key in enumerate(node.header.keys))
        values = {quoted(name): f"s.{quoted(name)}" for name in frame.columns}
        merge = tables.merge(node.table, source, on).delete(when=f"s.{_HAS_ROW} IS NULL").update(values)
        return merge.insert(values, when=f"s.{_HAS_ROW}").execute().rows
    finally:
        tables.spark.catalog.dropTempView(keys_view)


def _changed_keys(pinned: PinnedInputs[Tables], node: Node, decision: Decision) -> DataFrame:
    """Return the keys of changed driving rows: values before and after the change.

    Includes rows that entered or left the quarantine of the driving table.

    I/O: reads the change data feed of the driving table and of its quarantine.

    Raises:
        _IncrementalNotPossible: The feed is disabled, expired, or spans a schema change that it cannot read.
    """
    key_lineage = node.key_lineage
    assert key_lineage is not None  # decide() returns "incremental" only for nodes with key lineage
    key_columns = [f"{key} AS {_key_alias(number)}" for number, key in enumerate(key_lineage.keys)]
    frames = []
    try:
        for table, after in decision.built_from.items():
            rows = feed(pinned.tables, table, after + 1, decision.inputs[table].version)
            if table != key_lineage.table:
                now = pinned.tables.read(key_lineage.table, version=decision.inputs[key_lineage.table].version)
                moved = rows.select("_key").distinct().alias("q")
                rows = now.alias("t").join(moved, F.col("t._key").eqNullSafe(F.col("q._key")), "left_semi")
            frames.append(rows.selectExpr(*key_columns))
        keys = reduce(DataFrame.unionByName, frames).distinct()
        require_readable(keys, f"the changed keys of {key_lineage.table}")
    except (PySparkException, FeedLost) as error:
        raise _IncrementalNotPossible(f"its changes cannot be read ({one_line(error)})") from error
    return keys


def _restricted_to_keys(pinned: PinnedInputs[Tables], node: Node, keys: str) -> Source:
    """Return table sources in which the driving table has only the rows whose key is in the view *keys*."""
    key_lineage = node.key_lineage
    assert key_lineage is not None  # see _changed_keys
    on = " AND ".join(f"{key} <=> k.{_key_alias(number)}" for number, key in enumerate(key_lineage.keys))

    def source(table: TableName) -> str:
        if table != key_lineage.table:
            return pinned.sql(table)
        return f"(SELECT * FROM {pinned.sql(table)} LEFT SEMI JOIN {keys} AS k ON {on})"

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
    checked = F.when(F.col("_rows_per_key") == 1, F.col(quoted(first))).otherwise(
        F.raise_error(message).cast(rows.schema[first].dataType)
    )
    metadata = rows.schema[first].metadata
    counted = rows.withColumn("_rows_per_key", F.count("*").over(same_key))
    return counted.withColumn(first, checked).withMetadata(first, metadata).drop("_rows_per_key")


def _with_comments(node: Node, rows: DataFrame) -> DataFrame:
    """Return *rows* with the column comments of the header as metadata."""
    _refuse_unknown_columns(node, rows)
    return with_comments(rows, {name: node.header.columns.get(name.lower(), "") for name in rows.columns})


def _refuse_unknown_columns(node: Node, rows: DataFrame) -> None:
    known = {name.lower() for name in rows.columns}
    unknown = [
        f"{node.file}: there is no column {name}{suggestion(name, known)}"
        for name in node.header.columns
        if name not in known
    ]
    if unknown:
        raise ConfigurationError("; ".join(unknown), next_step="correct the header")


def _column_types(rows: DataFrame) -> Mapping[str, str]:
    return {field.name: field.dataType.simpleString() for field in rows.schema.fields}


def _key_alias(number: int) -> str:
    return f"_strandline_key_{number}"
