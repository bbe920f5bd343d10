"""Collapse changes to one state for each key. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.errors import ContractError
from strandline.io.spark import column_functions as F
from strandline.model.lives import ONE_LIFE, Lives
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import CHANGE_OPS, READ_CAPPED
from strandline.silver.incarnations import are_one
from strandline.silver.key_filter import MAX_LISTED_KEYS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

READS: Final = (
    "key",
    "position",
    "op",
    "cluster_time",
    "collection_uuid",
    "document_size",
    "envelope",
    "_commit_version",
    "inexact",
)
"""Columns of changes that `latest_per_key` reads. `as_changes` makes them from bronze rows."""

NEWEST: Final = ("_key", "_position", "_op", "_deleted", "_cluster_time", "_bronze_version", "_collection_uuid")
"""Columns of a key's newest change. Python on the executors passes them through."""
NEWEST_DDL: Final = (
    "_key STRING, _position STRING, _op STRING, _deleted BOOLEAN, _cluster_time TIMESTAMP, "
    "_bronze_version BIGINT, _collection_uuid STRING"
)
PENDING_TYPE: Final = "ARRAY<STRUCT<position: STRING, patch: BINARY>>"


def as_changes(rows: DataFrame, *, exact_updates: bool) -> DataFrame:
    """Turn bronze rows into changes. Control rows are kept.

    Args:
        rows: Bronze rows.
        exact_updates: True if documents of updates are post-images, not lookups.

    Returns:
        *rows* with the column ``inexact``: the reason why the row's document may not be the one at its position
        (`fold.step.Base`); null: it is. An oversize event, stored without its document, gets the ``op`` of an insert or
        an update.
    """
    op, kind = F.col("op"), F.col("operation_type")
    looked_up = (op == "u") & ~kind.eqNullSafe("replace") & F.lit(not exact_updates)
    inexact = F.when(looked_up, "lookup").when((op == "r") & (kind == READ_CAPPED), "capped")
    left_out = (op == "oversize") & F.col("key").isNotNull()
    return rows.withColumns(
        {"inexact": inexact, "op": F.when(left_out, F.when(kind == "insert", "c").otherwise("u")).otherwise(op)}
    )


def latest_per_key(changes: DataFrame, lives: Lives = ONE_LIFE) -> DataFrame:
    """Keep the newest change and the newest document of every key.

    The two may come from different changes: a delete has no document, and an update's lookup may return null.
    Both have the largest position of their kind. So the order, batching and duplication of rows do not matter.

    Args:
        changes: Output of `as_changes` for one collection; reads `READS`. Control rows are ignored.
        lives: Lives of the collection's name.

    Returns:
        At most one row per key. Empty in, empty out. Columns:

        * `NEWEST`: the newest change.
        * ``_base_position``, ``base_op``, ``envelope``: the newest document. ``_inexact_because``: the reason why it
          may not be the document at that position. All null if there is no document, or only one of an earlier
          life of the name.
        * ``inserted``: True if the stream inserted the key.

    Raises:
        ContractError: A column is missing (checked on the schema, before any job runs).

    Source:
        Delta MERGE needs unique source keys: delta-io/delta#180.
    """
    missing = [column for column in READS if column not in changes.columns]
    if missing:
        raise ContractError(f"bronze rows lack {', '.join(missing)}", next_step="strandline doctor")
    has_document = F.col("document_size").isNotNull()
    newest = F.max(F.struct("position", "op", "cluster_time", "collection_uuid", "_commit_version")).alias("newest")
    # max_by, not max: comparing rows would compare whole envelopes.
    base_position = F.max(F.when(has_document, F.col("position"))).alias("_base_position")
    base = F.max_by(F.struct("op", "envelope", "inexact"), F.when(has_document, F.col("position"))).alias("base")
    its_own = F.col("_base_position").isNotNull() & F.expr(are_one(lives, "newest.position", "_base_position"))
    return (
        changes.where(F.col("op").isin(*CHANGE_OPS))
        .groupBy(F.col("key").alias("_key"))
        .agg(newest, base_position, base, contains_insert().alias("inserted"))
        .select("_key", *_newest_columns("newest."), *_document_columns(its_own, "base.", "_base_position"), "inserted")
    )


@dataclass(frozen=True)
class LatestRows:
    """The newest change and document of every key of a batch."""

    rows: DataFrame
    """One row per key: see `latest_per_key`."""
    count: int | None
    """Number of rows. None: not counted."""


def latest_rows(
    changes: DataFrame, count: int, lives: Lives = ONE_LIFE, *, has_distinct_keys: bool = False
) -> LatestRows:
    """Reduce a batch as `latest_per_key` does. In a large batch, only the documents of repeated keys are shuffled.

    I/O: for a large batch in which keys may repeat, one job over the columns ``op`` and ``key``; writes nothing.

    Args:
        changes: See `latest_per_key`.
        count: Number of *changes*, control rows left out.
        lives: Lives of the collection's name.
        has_distinct_keys: True if no key repeats.
    """
    if count <= MAX_LISTED_KEYS:
        return LatestRows(latest_per_key(changes, lives), None)
    if has_distinct_keys:
        return LatestRows(_only_change_of_key(changes), count)
    counts = changes.where(F.col("op").isin(*CHANGE_OPS)).groupBy("key").count().where("count > 1")
    repeated_rows = counts.limit(MAX_LISTED_KEYS + 1).collect()
    repeated = [row["key"] for row in repeated_rows]
    if len(repeated) > MAX_LISTED_KEYS or None in repeated:
        return LatestRows(latest_per_key(changes, lives), None)
    is_repeated = F.col("key").isin(*repeated)
    rows = _only_change_of_key(changes.where(~is_repeated)) if repeated else _only_change_of_key(changes)
    if repeated:
        rows = rows.unionByName(latest_per_key(changes.where(is_repeated), lives))
    return LatestRows(rows, count - sum(row["count"] - 1 for row in repeated_rows))


def _only_change_of_key(changes: DataFrame) -> DataFrame:
    """Return the rows of `latest_per_key` for keys with one change."""
    has_document = F.col("document_size").isNotNull()
    return changes.where(F.col("op").isin(*CHANGE_OPS)).select(
        F.col("key").alias("_key"),
        *_newest_columns(""),
        *_document_columns(has_document, "", "position"),
        (F.col("op") == "c").alias("inserted"),
    )


def _newest_columns(change: str) -> list[Column]:
    """Return the columns `NEWEST` after the key. *change*: prefix of the newest change's columns."""
    return [
        F.col(f"{change}position").alias("_position"),
        F.col(f"{change}op").alias("_op"),
        (F.col(f"{change}op") == "d").alias("_deleted"),
        F.col(f"{change}cluster_time").alias("_cluster_time"),
        F.col(f"{change}_commit_version").alias("_bronze_version"),
        F.col(f"{change}collection_uuid").alias("_collection_uuid"),
    ]


def _document_columns(exists: Column, change: str, position: str) -> list[Column]:
    """Return the columns of the newest document, null unless it *exists*.

    Args:
        change: Prefix of the columns of the change that brought it.
        position: Column with its position.
    """
    columns = {"_base_position": position}
    columns |= {"base_op": f"{change}op", "envelope": f"{change}envelope", "_inexact_because": f"{change}inexact"}
    return [F.when(exists, F.col(column)).alias(name) for name, column in columns.items()]


def contains_insert() -> Column:
    """Return an aggregate over the changes of a key: true if one of them is an insert event."""
    return F.max(F.col("op") == "c")


def in_namespace(*namespaces: Namespace) -> Column:
    """Return a column: true if a bronze row has the name of one of the collections."""
    databases, collections = ({name[part] for name in namespaces} for part in (0, 1))
    has_name = F.col("db").isin(*databases) & F.col("collection").isin(*collections)
    if len(namespaces) == 1:
        return has_name
    return has_name & F.concat(F.col("db"), F.lit("."), F.col("collection")).isin(*map(str, namespaces))


def without_deleted_values(state: DataFrame) -> DataFrame:
    """Clear the document of every tombstone, for ``deletes: hard``. The tombstone keeps its position."""
    keep = ~F.col("_deleted")
    values = [
        name
        for name in ("_base_position", "base_op", "envelope", "_inexact_because", "_pending")
        if name in state.columns
    ]
    cleared: dict[str, Column] = {name: F.when(keep, F.col(name)) for name in values}
    return state.withColumns(cleared)
