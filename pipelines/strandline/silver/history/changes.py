"""Changes that new facts make to the versions in a history table. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline.model.gap import Gap
from strandline.model.lives import ONE_LIFE, Lives
from strandline.model.position import cluster_seconds
from strandline.model.shape import Compatibility, Shape
from strandline.model.table_schemas import CHANGE_OPS, HISTORY_ACTION
from strandline.silver.decode.rows import decoded_rows
from strandline.silver.history.versions import Change, Fact, Version, changed_versions, fact_of
from strandline.silver.sweep import Sweep

HISTORY_READS: Final = ("key", "position", "op", "collection_uuid", "captured_at", "envelope", "inexact")
"""Columns of changes (`as_changes`) from which facts are made."""

_VERSION_COLUMNS: Final = (
    "_position",
    "_valid_to_position",
    "_op",
    "_collection_uuid",
    "_captured_at",
    "_document",
    "_exact",
    "_patch",
    "_confirmed",
)
"""Columns of the history table from which a `Version` is read."""

_TIME: Final = pa.timestamp("us", tz="UTC")
_WRITTEN: Final = {
    "_key": ("STRING", pa.string()),
    HISTORY_ACTION: ("STRING", pa.string()),
    "_position": ("STRING", pa.string()),
    "_valid_to_position": ("STRING", pa.string()),
    "_valid_from": ("TIMESTAMP", _TIME),
    "_valid_to": ("TIMESTAMP", _TIME),
    "_op": ("STRING", pa.string()),
    "_deleted": ("BOOLEAN", pa.bool_()),
    "_captured_at": ("TIMESTAMP", _TIME),
    "_collection_uuid": ("STRING", pa.string()),
    "_patch": ("BINARY", pa.binary()),
    "_confirmed": (
        "ARRAY<STRUCT<position: STRING, captured_at: TIMESTAMP>>",
        pa.list_(pa.struct([("position", pa.string()), ("captured_at", _TIME)])),
    ),
    "_exact": ("BOOLEAN", pa.bool_()),
}
_WRITTEN_DDL: Final = ", ".join(f"{name} {ddl}" for name, (ddl, _) in _WRITTEN.items())
_DOCUMENT: Final = {"base_op": pa.string(), "envelope": pa.binary()}


def facts_in(changes: DataFrame) -> DataFrame:
    """Return the facts in bronze rows: ``_key`` and the other `HISTORY_READS`. Control rows are left out."""
    return changes.where(F.col("op").isin(*CHANGE_OPS)).select(F.col("key").alias("_key"), *HISTORY_READS[1:])


def ends_at(rows: DataFrame, position: Column) -> DataFrame:
    """Return one deletion fact at *position* for each of *rows* (versions in force)."""
    kinds = {"captured_at": "TIMESTAMP", "envelope": "BINARY", "inexact": "STRING"}
    nothing = [F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]
    return rows.select(
        "_key",
        position.alias("position"),
        F.lit("d").alias("op"),
        F.col("_collection_uuid").alias("collection_uuid"),
        *nothing,
    )


def swept_versions(versions: DataFrame, read_keys: DataFrame, sweep: Sweep) -> DataFrame:
    """Return the versions that a sweep ends.

    Such a version was in force when the snapshot began to read, the snapshot did not find its document, and no event
    explains this. A later insert of the key does not matter: it also means that the document was gone.

    Args:
        versions: History table.
        read_keys: Keys that the snapshot read (column ``key``).
        sweep: Sweep of the collection.

    Returns:
        Rows of *versions*, as input of `ends_at`.
    """
    spans = versions.select("_key", "_position", "_valid_to_position", "_op", "_deleted", "_collection_uuid")
    was_there = (F.col("_position") < sweep.position) & ~F.col("_deleted") & (F.col("_op") != "b")
    in_force = spans.where(was_there & F.coalesce(F.col("_valid_to_position") > sweep.position, F.lit(True)))
    is_explaining = (
        (F.col("_position") > sweep.position)
        & (F.col("_position") <= sweep.absence_position)
        & ~F.col("_op").isin("c", "r")
    )
    explaining = spans.where(is_explaining).select(F.col("_key").alias("key"), F.col("_position").alias("position"))
    goes_on = F.col("_key").eqNullSafe(F.col("key")) & (F.col("_valid_to_position") == F.col("position"))
    in_force = in_force.join(explaining, goes_on, "left_anti")
    return in_force.join(read_keys, F.col("_key").eqNullSafe(F.col("key")), "left_anti")


def reaches(valid_to_position: str, since: str) -> str:
    """Return an SQL predicate: true if a version is in force at position *since* or later.

    Only such versions may be changed by facts at *since* or later.
    """
    return f"({valid_to_position} IS NULL OR {valid_to_position} >= {since})"


def history_changes(
    facts: DataFrame,
    current: DataFrame,
    shape: Shape,
    compatibility: Compatibility,
    *,
    lives: Lives = ONE_LIFE,
    gaps: Sequence[Gap] = (),
    hard_deletes: bool = False,
) -> DataFrame:
    """Return the changes that *facts* make to a history table.

    Only versions of the keys in *facts* are read, and only those in force at the key's oldest fact or later. A hard
    delete reads all versions of its key.

    Args:
        facts: Output of `facts_in` and `ends_at`; any number per key, in any order, with or without duplicates.
        current: History table.
        shape: Shape of the history table.
        compatibility: Compatibility of the history table.
        lives, gaps, hard_deletes: See `changed_versions` and `fact_of`.

    Returns:
        One row for each changed version: the table's columns and `HISTORY_ACTION`. ``write`` replaces the whole
        version, ``window`` only its end and its confirmations, ``remove`` deletes it. Only a ``write`` has values.
    """
    since = F.min("position")
    if hard_deletes:
        since = F.when(F.max(F.col("op") == "d"), F.lit("")).otherwise(since)
    collected = F.collect_list(F.struct(*HISTORY_READS[1:]))
    new_facts = facts.groupBy(F.col("_key").alias("key")).agg(since.alias("since"), collected.alias("facts"))
    versions = current.select("_key", F.struct(*_VERSION_COLUMNS).alias("versions"), "_valid_to_position")
    joined = new_facts.join(versions, F.expr(f"key <=> _key AND {reaches('_valid_to_position', 'since')}"), "left")
    by_key = joined.groupBy("key").agg(F.first("facts").alias("facts"), F.collect_list("versions").alias("versions"))
    changing = _changing(lives, tuple(gaps), hard_deletes)
    changed = by_key.mapInArrow(changing, f"{_WRITTEN_DDL}, base_op STRING, envelope BINARY")
    return decoded_rows(changed, shape, compatibility, keeping=tuple(_WRITTEN), keeping_ddl=_WRITTEN_DDL)


def _changing(
    lives: Lives, gaps: tuple[Gap, ...], hard_deletes: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    types = {name: kind for name, (_, kind) in _WRITTEN.items()} | _DOCUMENT
    schema = pa.schema(list(types.items()))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows: list[dict[str, Any]] = []
            for entry in batch.to_pylist():
                new_facts = [_fact(row, gaps) for row in entry["facts"]]
                versions = [_version(row) for row in entry["versions"]]
                changes = changed_versions(versions, new_facts, lives=lives, gaps=gaps, hard_deletes=hard_deletes)
                rows += [_row(entry["key"], change) for change in changes]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return run


def _fact(row: dict[str, Any], gaps: tuple[Gap, ...]) -> Fact:
    uuid, at, exact = row["collection_uuid"], row["captured_at"], row["inexact"] is None
    return fact_of(row["position"], row["op"], uuid, at, row["envelope"], exact=exact, gaps=gaps)


def _version(row: dict[str, Any]) -> Version:
    return Version(
        row["_position"],
        row["_op"],
        row["_collection_uuid"],
        row["_captured_at"],
        row["_document"],
        row["_exact"],
        row["_patch"],
        tuple((confirmation["position"], confirmation["captured_at"]) for confirmation in row["_confirmed"] or ()),
        row["_valid_to_position"],
    )


def _row(key: str | None, change: Change) -> dict[str, Any]:
    version = change.version
    confirmed = [{"position": position, "captured_at": at} for position, at in version.confirmed]
    return {
        "_key": key,
        HISTORY_ACTION: change.action,
        "_position": version.position,
        "_valid_to_position": version.until,
        "_valid_from": _cluster_time(version.position),
        "_valid_to": None if version.until is None else _cluster_time(version.until),
        "_op": version.op,
        "_deleted": version.deleted,
        "_captured_at": version.captured_at,
        "_collection_uuid": version.uuid,
        "_patch": version.patch,
        "_confirmed": confirmed or None,
        "_exact": version.exact,
        "base_op": "r",
        "envelope": version.document if change.action == "write" else None,
    }


def _cluster_time(position: str) -> datetime:
    return datetime.fromtimestamp(cluster_seconds(position), UTC)
