"""Erasure of documents from bronze, by the engine that writes bronze."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from strandline.bronze.erasure import HEARTBEAT_COLUMNS, READS, ErasureRule
from strandline.errors import RetriableError
from strandline.io.delta_log.plain_protocol import make_plain
from strandline.io.delta_log.sorted_rewrite import key_columns, remove_rows
from strandline.io.spark.conflicts import LOST_RACES
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.erase.places import Scope
from strandline.model.merge_rule import MergeRule
from strandline.model.tables import TableName

_APPEND_ONLY: Final = "delta.appendOnly"
AGAIN: Final = "repeat the command"


def erase_from_bronze(scope: Scope, erasure: ErasureRule) -> None:
    """Remove the rows of the documents from bronze, and what names them from other rows.

    I/O: where delta-rs writes bronze, reads key columns, and rewrites files in commits that change no data. Spark
    deletes and updates rows.

    Raises:
        RetriableError: A writer was at work. Some files may hold the documents still. Calling again is safe.
    """
    store = scope.ctx.for_capture().tables
    try:
        erased = _by_delta_rs(store, scope, erasure) if isinstance(store, DeltaRsTables) else _by_spark(scope, erasure)
    except LOST_RACES:
        erased = False
    if not erased:
        raise RetriableError("bronze was changed by a writer at the same moment", next_step=AGAIN)


def _by_delta_rs(store: DeltaRsTables, scope: Scope, erasure: ErasureRule) -> bool:
    with table_errors(scope.bronze):
        folder = store.folder(scope.bronze)
        make_plain(folder)
        gone = {
            path: np.concatenate([np.zeros(0, bool), *(np.asarray(erasure.look(batch)) for batch in batches)])
            for path, _, batches in key_columns(folder, READS, lambda _: True)
        }
        files = key_columns(folder, READS, lambda file: file["path"] in gone)
        named = {path for path, _, batches in files if any(map(erasure.names_documents, batches))}
        chosen = {path: rows for path, rows in gone.items() if rows.any() or path in named}
        return None not in list(remove_rows(folder, chosen, erasure.cleaned))


def _by_spark(scope: Scope, erasure: ErasureRule) -> bool:
    """Bronze accepts other changes than appends until the end. The rows go last: they tell the tokens."""
    tables, bronze = scope.ctx.tables, scope.bronze
    (table, *_) = scope.keyed
    tables.set_properties(bronze, {_APPEND_ONLY: "false"})
    try:
        tokens = scope.ctx.spark.createDataFrame([(token,) for token in sorted(erasure.tokens)], "data STRING")
        ends = tables.read(bronze).where("resume_token IS NOT NULL").select("resume_token")
        ends = ends.join(tokens, F.get_json_object("resume_token", "$._data") == F.col("data"), "left_semi")
        replace_values(
            tables,
            bronze,
            "resume_token",
            erasure.new_tokens(pa.array([row[0] for row in ends.collect()], pa.string())),
        )
        plans = tables.read(bronze).where("op = 'snapshot' AND operation_type = 'plan'").select("after").collect()
        replace_values(tables, bronze, "after", erasure.new_plans(row[0] for row in plans))
        rest = {name: "NULL" for name in tables.columns(bronze) if name not in HEARTBEAT_COLUMNS}
        rule = MergeRule(("key",)).delete(when="t.resume_token IS NULL").update([], rest | {"op": "'heartbeat'"})
        tables.merge(bronze, scope.key_rows().withColumnRenamed("erased", "key"), rule, among=table.among)
        purge_marked_rows(tables, bronze)
    finally:
        tables.set_properties(bronze, {_APPEND_ONLY: "true"})
    return True


def replace_values(tables: Tables, table: TableName, column: str, new: Mapping[str, str]) -> None:
    """I/O: one MERGE that replaces values of a column. The commit names none of them. None without values."""
    if new:
        rows = tables.spark.createDataFrame(list(new.items()), f"{column} STRING, replacement STRING")
        rule = MergeRule((column,)).update([], {column: "s.replacement"})
        tables.merge(table, rows, rule, among=f"t.{column} IS NOT NULL")


def purge_marked_rows(tables: Tables, table: TableName) -> None:
    """I/O: writes files anew that hold deleted rows, which only a deletion vector marks."""
    if tables.properties(table).get("delta.enableDeletionVectors") == "true":
        tables.spark.sql(f"REORG TABLE {tables.lake.sql(table)} APPLY (PURGE)").collect()
