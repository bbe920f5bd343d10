"""Replace the whole content of a table in one commit, and drop a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.errors import PySparkException

from strandline.errors import ConfigurationError, one_line
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.delta_log.replacement import replace_content
from strandline.io.tables.ddl import properties_clause
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_listing import remove_folder
from strandline.io.tables.table_store import CHANGE_FEED, TableStore
from strandline.model.lake_format import stamp
from strandline.model.tables import TableName, quoted_path

_ITS_OWN = ("delta.columnMapping.maxColumnId", "delta.feature.", "delta.rowTracking.")
"""Prefixes of properties that describe the present columns and files of one table, and must not be copied."""


def swap(
    tables: Tables,
    table: TableName,
    by: TableName,
    *,
    properties: Mapping[str, str],
    cluster_by: Sequence[str],
    features: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """I/O: one commit replaces rows, columns and properties of *table* by those of table *by*.

    A second commit enables the change feed again, if *properties* ask for it. A reader sees the old table or the new
    one. The old version stays in the table's history.

    Args:
        properties: All properties of the table afterwards.
        features: Properties ``delta.feature.…`` of the table afterwards. Among *properties* they are left out.

    Effects on failure:
        The change feed may be disabled.
    """
    feed, own = split_properties(properties)
    own |= {**tables.required_properties, **features, **stamp(table)}
    # In SQL: `DataFrameWriterV2` cannot cluster Delta tables (DELTA_OPERATION_NOT_ALLOWED).
    columns = (quoted_path(name.split(".")) for name in cluster_by)
    clustering = f"CLUSTER BY ({', '.join(columns)})" if cluster_by else ""
    tables.spark.sql(
        f"CREATE OR REPLACE TABLE {tables.lake.sql(table)} USING delta {clustering} {properties_clause(own)} "
        f"AS SELECT * FROM {tables.lake.sql(by)}"
    )
    # A second commit: DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION forbids to replace columns while the feed is on.
    if feed:
        tables.set_properties(table, feed)


def split_properties(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the property that enables the change feed, and those that may be copied to another table."""
    feed = {key: value for key, value in properties.items() if key == CHANGE_FEED}
    return feed, {key: value for key, value in properties.items() if not key.startswith(_ITS_OWN) and key not in feed}


def swap_files(tables: DeltaRsTables, table: TableName, by: TableName, *, properties: Mapping[str, str]) -> bool:
    """As `swap`, of plain tables, without Spark: the files of *by* become those of *table*, and stay as they are.

    False: another commit has come, or only Spark can change one of the tables. Nothing was changed.
    """
    feed, own = split_properties(properties)
    present, other = (MergeableTable.open(tables.folder(name), key="_key") for name in (table, by))
    if present is None or other is None or not replace_content(present, other, own | stamp(table)):
        return False
    if feed:
        tables.set_properties(table, feed)
    return True


def discard(tables: TableStore, table: TableName) -> None:
    """I/O: drops a table and removes its files. Idempotent.

    Raises:
        ConfigurationError: Spark's catalog does not remove the table's files. The table is unchanged.
    """
    if not tables.exists(table):
        return
    if isinstance(tables, DeltaRsTables):
        tables.folder(table).remove_all()
        return
    assert isinstance(tables, Tables)
    if tables.lake.by_path:
        _remove(tables, table)
    else:
        tables.spark.sql(f"DROP TABLE {tables.lake.sql(table)}")


def _remove(tables: Tables, table: TableName) -> None:
    reason = "its catalog kept them"
    try:
        remove_folder(tables.spark, tables.lake.path(table))
    except PySparkException as error:  # each catalog has its own class for what it does not do
        reason = one_line(error)
    if tables.exists(table):
        raise ConfigurationError(
            f"{table} is not removed: Spark does not remove files of {tables.lake.root} ({reason})",
            next_step="repeat the command with a Spark whose spark_catalog is its own (no Unity Catalog),"
            " or set lake.catalog",
        )
