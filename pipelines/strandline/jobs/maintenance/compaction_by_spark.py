"""Compaction of bronze by Spark, where delta-rs does not write it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.bronze.compaction import CompactionRule
from strandline.io.spark.conflicts import LOST_RACES
from strandline.io.tables.spark_tables import Tables
from strandline.model.merge_rule import MergeRule
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import DOCUMENT_OPS
from strandline.model.tables import TableName, literal, literals

_APPEND_ONLY = "delta.appendOnly"
_KEYS = ("db", "collection", "key")


def remove_by_spark(tables: Tables, bronze: TableName, rule: CompactionRule) -> int | None:
    """Delete the rows that no reader needs. I/O: up to four commits. Return their number. None: a conflict was lost.

    Effects on failure: bronze is whole. It may accept other changes than appends until the next compaction ends.
    """
    tables.set_properties(bronze, rule.horizon.properties | {_APPEND_ONLY: "false"})
    try:
        removal = MergeRule(_KEYS).delete(when=_is_superseded(rule))
        removed = tables.merge(bronze, _keys(tables.read(bronze), rule), removal, among=_is_match(rule))
        return removed.deleted + tables.delete(bronze, _is_heartbeat(rule))
    except LOST_RACES:
        return None
    finally:
        tables.set_properties(bronze, {_APPEND_ONLY: "true"})


def count_removable(tables: Tables, bronze: TableName, rule: CompactionRule) -> int:
    """I/O: returns the number of rows that `remove_by_spark` would delete."""
    rows = tables.read(bronze).alias("t")
    keys = _keys(tables.read(bronze), rule).alias("s")
    is_same = " AND ".join(f"t.{name} = s.{name}" for name in _KEYS)
    superseded = rows.join(keys, F.expr(f"{is_same} AND {_is_match(rule)} AND {_is_superseded(rule)}"))
    return superseded.count() + rows.where(_is_heartbeat(rule)).count()


def _keys(rows: DataFrame, rule: CompactionRule) -> DataFrame:
    """Return what is known of each key: the columns that `_is_superseded` reads of ``s``."""
    events = rows.where(_is_event(rule, "")).withColumn("life", F.expr(_life(rule, "")))
    base = F.max(F.when(F.col("document_size").isNotNull(), F.col("position"))).alias("base")
    keys = events.groupBy(*_KEYS, "life").agg(base, F.max(F.struct("position", "op")).alias("newest"))
    limits = [(*name, limit) for name in _names(rule) if (limit := rule.limit(name))]
    first = _frame(rows, sorted(rule.arrivals), (*_KEYS, "at")).groupBy(*_KEYS).agg(F.collect_set("at").alias("stays"))
    keys = keys.join(F.broadcast(_frame(rows, limits, ("db", "collection", "limit"))), ["db", "collection"], "left")
    keys = keys.join(F.broadcast(first), list(_KEYS), "left")
    is_purged = (F.col("newest.op") == "d") & (F.col("newest.position") < F.col("limit"))
    return keys.select(*_KEYS, "life", "base", F.coalesce(is_purged, F.lit(False)).alias("is_purged"), "stays")


def _frame(rows: DataFrame, texts: Sequence[tuple[str, ...]], names: Sequence[str]) -> DataFrame:
    return rows.sparkSession.createDataFrame(texts, ", ".join(f"{name} STRING" for name in names))


def _names(rule: CompactionRule) -> list[Namespace]:
    return sorted({Namespace(db, collection) for db, collection, _, _ in rule.arrivals})


def _is_event(rule: CompactionRule, of: str) -> str:
    """Return SQL: true for an event of a document before the horizon. *of*: prefix of bronze's columns."""
    is_before = f"{of}position < {literal(rule.horizon.position)}"
    return f"{of}op IN ({literals(DOCUMENT_OPS)}) AND {of}key IS NOT NULL AND {is_before}"


def _is_match(rule: CompactionRule) -> str:
    """Return SQL: true for an event ``t`` in the life of a row ``s`` of `_keys`."""
    return f"{_is_event(rule, 't.')} AND {_life(rule, 't.')} = s.life"


def _is_superseded(rule: CompactionRule) -> str:
    """Return SQL: true for an event ``t`` that goes, given what is known of its key: a row ``s`` of `_keys`."""
    spans = [
        f"(t.db = {literal(name.db)} AND t.collection = {literal(name.collection)}"
        f" AND t.position > {literal(begin)} AND t.position < {literal(end)})"
        for name in rule.events
        for begin, end in rule.ended_spans(name)
    ]
    ends_batch = f"t.resume_token IS NOT NULL AND (t.snapshot_id IS NOT NULL OR t.batch > {rule.horizon.batch})"
    goes = " OR ".join(["t.position < s.base", "s.is_purged", *spans])
    return (
        f"coalesce({goes}, false) AND NOT ({ends_batch}) AND NOT coalesce(array_contains(s.stays, t.position), false)"
    )


def _is_heartbeat(rule: CompactionRule) -> str:
    return f"op = 'heartbeat' AND batch <= {rule.horizon.batch}"


def _life(rule: CompactionRule, of: str) -> str:
    """Return SQL for the number of the life of the name that a row belongs to. *of*: prefix of bronze's columns."""
    cases = [
        f"WHEN {of}db = {literal(name.db)} AND {of}collection = {literal(name.collection)} THEN "
        + " + ".join(f"CAST({of}position > {literal(boundary)} AS INT)" for boundary in rule.lives(name).boundaries)
        for name in rule.events
        if rule.lives(name).boundaries
    ]
    return f"CASE {' '.join(cases)} ELSE 0 END" if cases else "0"
