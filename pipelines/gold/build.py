"""Builds one node of gold: a view, a whole table, or the keys of it that may have changed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.errors import ConfigurationError, one_line
from pipelines.gold.build_decision import Decision, remembered
from pipelines.gold.graph import Graph, Node
from pipelines.gold.pinned_inputs import PinnedInputs, visible
from pipelines.gold.spark_names import Source, spark_sql
from pipelines.gold.statement import nearest
from pipelines.io.increments import FeedLost, feed, require_readable
from pipelines.model.tables import TableName, quoted
from pipelines.plain_text import OWN_MESSAGE

_FOUND = "_strandline_found"


class _NotByKeys(Exception):
    """A table cannot be brought up to date key by key; nothing was written."""


def build_view(pinned: PinnedInputs, graph: Graph, node: Node) -> None:
    """I/O: analyses the query, so that a broken view is reported now and not at its first reader; in a catalog, (re)places the view."""
    tables = pinned.tables
    frame = tables.spark.sql(spark_sql(pinned.tables.lake, graph, node.statement, pinned.sql))
    _refuse_unknown_columns(node, frame)
    if not tables.lake.by_path:
        columns = {name: node.header.columns.get(name.lower(), "") for name in frame.columns}
        sql = spark_sql(tables.lake, graph, node.statement, visible(tables.lake, pinned.quarantines), inline=False)
        tables.replace_view(node.table, sql, columns, comment=node.header.description)


def build_rows(pinned: PinnedInputs, graph: Graph, node: Node, decision: Decision) -> tuple[int, str]:
    """Bring a table up to date, then note in it what it was built from.

    I/O: one commit with rows, then one with properties. A crash between the two repeats the first.

    Returns:
        Rows written, by the commit; and how it was done: ``full`` or ``incremental``, with the reason.
    """
    rows, how = None, decision.reason
    if decision.action == "incremental":
        try:
            rows = _merge(pinned, graph, node, decision)
        except _NotByKeys as why:
            how = f"{how}; but {why}"
    done = "full" if rows is None else "incremental"
    if rows is None:
        frame = _commented(
            node, pinned.tables.spark.sql(spark_sql(pinned.tables.lake, graph, node.statement, pinned.sql))
        )
        pinned.tables.replace(node.table, _unique(node, frame), comment=node.header.description)
        rows = int(pinned.tables.history(node.table)[0].metrics["numOutputRows"])
    pinned.tables.set_properties(node.table, remembered(graph, node, decision))
    return rows, f"{done}: {how}"


def _merge(pinned: PinnedInputs, graph: Graph, node: Node, decision: Decision) -> int:
    """MERGE the rows of all keys that changed driving rows have, or had; keys that have no row any more are deleted."""
    tables, views = pinned.tables, f"strandline_keys_{uuid.uuid4().hex}"
    try:
        keys = _changed_keys(pinned, node, decision)
        keys.createTempView(views)
        frame = tables.spark.sql(spark_sql(tables.lake, graph, node.statement, _restricted(pinned, node, views)))
        if _shape(frame) != _shape(tables.read(node.table)):
            raise _NotByKeys("the columns of the result changed")
        rows = _unique(node, frame).withColumn(_FOUND, F.lit(True)).alias("r")
        matches = [
            F.col(f"k.{_key(number)}").eqNullSafe(F.col(f"r.{quoted(key)}"))
            for number, key in enumerate(node.header.keys)
        ]
        source = keys.alias("k").join(rows, reduce(Column.__and__, matches), "left")
        on = " AND ".join(f"t.{quoted(key)} <=> s.{_key(number)}" for number, key in enumerate(node.header.keys))
        values = {quoted(name): f"s.{quoted(name)}" for name in frame.columns}
        merge = tables.merge(node.table, source, on).delete(when=f"s.{_FOUND} IS NULL").update(values)
        return merge.insert(values, when=f"s.{_FOUND}").execute().rows
    finally:
        tables.spark.catalog.dropTempView(views)


def _changed_keys(pinned: PinnedInputs, node: Node, decision: Decision) -> DataFrame:
    """The keys of driving rows that changed, before and after, and of those that went into quarantine or came back.

    Raises:
        _NotByKeys: The feed is off, has ended, or crosses a change of columns that it cannot show.
    """
    key_lineage = node.key_lineage
    assert key_lineage is not None  # decide() says incremental only of such a node
    named = [f"{key} AS {_key(number)}" for number, key in enumerate(key_lineage.keys)]
    frames = []
    try:
        for table, after in decision.before.items():
            rows = feed(pinned.tables, table, after + 1, decision.inputs[table].version)
            if table != key_lineage.table:
                now = pinned.tables.read(key_lineage.table, version=decision.inputs[key_lineage.table].version)
                moved = rows.select("_key").distinct().alias("q")
                rows = now.alias("t").join(moved, F.col("t._key").eqNullSafe(F.col("q._key")), "left_semi")
            frames.append(rows.selectExpr(*named))
        keys = reduce(DataFrame.unionByName, frames).distinct()
        require_readable(keys, f"the changed keys of {key_lineage.table}")
    except (PySparkException, FeedLost) as error:
        raise _NotByKeys(f"its changes cannot be read ({one_line(error)})") from error
    return keys


def _restricted(pinned: PinnedInputs, node: Node, keys: str) -> Source:
    """Sources of which the driving one shows only rows whose key stands in the view *keys*."""
    key_lineage = node.key_lineage
    assert key_lineage is not None  # as above
    on = " AND ".join(f"{key} <=> k.{_key(number)}" for number, key in enumerate(key_lineage.keys))

    def source(table: TableName) -> str:
        if table != key_lineage.table:
            return pinned.sql(table)
        return f"(SELECT * FROM {pinned.sql(table)} LEFT SEMI JOIN {keys} AS k ON {on})"

    return source


def _unique(node: Node, rows: DataFrame) -> DataFrame:
    """The same rows; writing them fails where two have the same keys."""
    keys = node.header.keys
    if not keys:
        return rows
    alike = Window.partitionBy(*(quoted(key) for key in keys)).rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    message = F.lit(f"{OWN_MESSAGE}keys: {', '.join(keys)} do not identify a row of {node.table}")
    first = next(name for name in rows.columns if name.lower() == keys[0])
    checked = F.when(F.col("_alike") == 1, F.col(quoted(first))).otherwise(
        F.raise_error(message).cast(rows.schema[first].dataType)
    )
    metadata = rows.schema[first].metadata
    counted = rows.withColumn("_alike", F.count("*").over(alike))
    return counted.withColumn(first, checked).withMetadata(first, metadata).drop("_alike")


def _commented(node: Node, rows: DataFrame) -> DataFrame:
    """*rows* whose columns carry the comments of the header into the table."""
    _refuse_unknown_columns(node, rows)
    for name in rows.columns:
        if comment := node.header.columns.get(name.lower()):
            rows = rows.withMetadata(name, {"comment": comment})
    return rows


def _refuse_unknown_columns(node: Node, rows: DataFrame) -> None:
    known = {name.lower() for name in rows.columns}
    unknown = [
        f"{node.file}: there is no column {name}{nearest(name, known)}"
        for name in node.header.columns
        if name not in known
    ]
    if unknown:
        raise ConfigurationError("; ".join(unknown), next_step="correct the header")


def _shape(rows: DataFrame) -> Mapping[str, str]:
    return {field.name: field.dataType.simpleString() for field in rows.schema.fields}


def _key(number: int) -> str:
    return f"_strandline_key_{number}"
